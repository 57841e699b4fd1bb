//! `GET /v1/channels/{name}/stream`: streams the events after a position as server-sent events.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::Instant;

use crate::access::Visitor;
use crate::calls::answer::{problem_message, write_message};
use crate::calls::parameters::{Parameters, PathNames, names, position};
use crate::problem::Problem;
use crate::state::limits::ReservedMemory;
use crate::state::{ChangeSignals, EventPage, EventRange, FeedState};

/// The largest number of events that are read at once.
const LIMIT: usize = 1_000;

/// The largest size of the events that are read at once, in bytes.
const MAX_BYTES: usize = 256 << 10;

/// The time between two comments while no event arrives. It must be shorter than `BOUNDS.each_step`, after which the server closes
/// a connection that sends nothing.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The first message: a client that was disconnected reconnects after a second.
const BEGIN: &str = "retry: 1000\n\n";

const COMMENT: &str = ":\n\n";

pub(super) async fn stream(
    State(state): State<Arc<FeedState>>,
    Extension(visitor): Extension<Visitor>,
    name: PathNames<String>,
    request: Request,
) -> Result<Response, Problem> {
    let channel = visitor.channel(&state.served().settings, &names(name)?)?.clone();
    let given = Parameters::read(request.uri().query(), &["after"])?.after;
    let after = match last_event_id(request.headers())?.or(given) {
        Some(after) => after,
        None => state.before_oldest(&channel).await?,
    };
    let request = EventRange { visitor, channel, after, limit: LIMIT, max_bytes: MAX_BYTES };
    let changes = state.changes();
    // A problem with the first page is the response. Later problems are messages of the stream.
    let page = state.page(&request).await.inspect_err(|problem| state.note(&request, problem))?;
    let events = EventStream { state, request, changes, part: StreamPart::Begin(page), sent: None };
    let parts =
        stream::unfold(events, |mut events| async move { Some((Ok::<_, io::Error>(events.next().await?), events)) });
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response())
}

/// The position at which a client resumes: the id of the last event that it received.
fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let mut values = headers.get_all("last-event-id").iter();
    match (values.next(), values.next()) {
        // A client that has received no event may send an empty id.
        (None, _) => Ok(None),
        (Some(value), None) if value.is_empty() => Ok(None),
        (Some(value), None) => position("Last-Event-ID", value.to_str().unwrap_or_default()).map(Some),
        _ => Err(Problem::invalid("Last-Event-ID is given more than once")),
    }
}

struct EventStream {
    state: Arc<FeedState>,
    request: EventRange,
    changes: ChangeSignals,
    part: StreamPart,
    /// The memory of the last part, if it contained events. It is freed when the client has read them.
    sent: Option<ReservedMemory>,
}

enum StreamPart {
    /// The first page.
    Begin(EventPage),
    Events,
    End,
}

impl EventStream {
    /// Returns the next part of the stream. `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.part, StreamPart::End) {
            StreamPart::Begin(page) => {
                self.part = StreamPart::Events;
                Some((BEGIN.to_owned() + &self.messages(page)).into())
            }
            StreamPart::Events if self.state.stop.is_cancelled() => None,
            StreamPart::Events => Some(match self.more().await {
                Ok(messages) => {
                    self.part = StreamPart::Events;
                    messages
                }
                Err(problem) => {
                    self.state.note(&self.request, &problem);
                    problem_message(&problem.json()).into()
                }
            }),
            StreamPart::End => None,
        }
    }

    /// Waits for events, and returns their messages. Returns a comment if no event arrives within `KEEP_ALIVE`.
    async fn more(&mut self) -> Result<Bytes, Problem> {
        let had_events = self.sent.take().is_some();
        let is_due = had_events || {
            let deadline = Instant::now() + KEEP_ALIVE;
            self.state.wait(&self.request, &mut self.changes, deadline).await?
        };
        let mut messages = String::new();
        if is_due {
            self.request.visitor.check(&self.state.served().settings, &self.request.channel)?;
            let page = self.state.page(&self.request).await?;
            messages = self.messages(page);
        }
        Ok(if messages.is_empty() { Bytes::from_static(COMMENT.as_bytes()) } else { messages.into() })
    }

    /// The messages of a page.
    fn messages(&mut self, EventPage { events, memory }: EventPage) -> String {
        self.sent = (!events.is_empty()).then_some(memory);
        let mut text = String::new();
        for event in events {
            write_message(&mut text, &event);
            self.request.after = event.position;
        }
        text
    }
}
