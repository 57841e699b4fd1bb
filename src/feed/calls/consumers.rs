//! The calls for clients whose position the feed keeps: a lease of the next events, and the commit after they were processed.

use std::sync::Arc;

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tracing::warn;

use crate::access::Visitor;
use crate::calls::answer;
use crate::calls::parameters::{Parameters, PathNames, names};
use crate::problem::{Problem, ProblemKind};
use crate::settings::FeedChannel;
use crate::state::limits::ReservedMemory;
use crate::state::{EventPage, FeedState, check_records, size};
use crate::table::{Committed, Leased, PageSize};

/// The largest body of a commit, in bytes.
const MAX_COMMIT: usize = 4 << 10;

/// `POST /v1/consumers/{consumer}/{channel}/lease`
pub(super) async fn lease(
    State(state): State<Arc<FeedState>>,
    Extension(visitor): Extension<Visitor>,
    path: PathNames<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let (consumer, mut channel) = consumer_and_channel(&state, visitor, names(path)?)?;
    let Parameters { limit, wait, .. } = Parameters::read(request.uri().query(), &["limit", "wait"])?;
    // Without the request, nothing but the events uses memory during a long wait.
    drop(request);
    let (deadline, mut changes) = (Instant::now() + wait, state.changes());
    let mut newest = None;
    loop {
        let served = state.served();
        channel = visitor.channel(&served.settings, &channel.name)?.clone();
        let most = PageSize { events: limit, bytes: state.memory.max_page() };
        let memory = state.reserve(visitor, most.bytes).await?;
        let leased = served.table.lease(&consumer, channel.id, most, served.settings.lease);
        let leased = state.of_table(leased).await?;
        if !matches!(leased, Leased::Nothing) {
            return answer(&state, visitor, &consumer, &channel, leased, memory).await;
        }
        drop(memory);
        // The deliveries to other channels do not end the wait.
        newest = state.newest_except(newest, channel.id, &mut changes, deadline).await?;
        if newest.is_none() {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
}

async fn answer(
    state: &FeedState,
    visitor: Visitor,
    consumer: &str,
    channel: &FeedChannel,
    leased: Leased,
    mut memory: ReservedMemory,
) -> Result<Response, Problem> {
    match leased {
        Leased::Events { lease, expires_in, events } => {
            check_records(&events)?;
            let size = size(&events).min(state.memory.most());
            if size > state.memory.max_page() {
                // A single record is larger than a page. If its memory cannot be reserved, the lease expires, as after a lost answer.
                drop(memory);
                memory = state.reserve(visitor, size).await?;
            }
            memory.shrink_to(size);
            let first = format!("\"lease\":{},\"expires_in\":{},", json!(lease), expires_in.as_secs());
            Ok(answer::events(&first, EventPage { events, memory }, ""))
        }
        Leased::Nothing => Ok(StatusCode::NO_CONTENT.into_response()),
        Leased::Held => {
            let detail = "another lease of this consumer and channel is valid: commit it, or wait until it expires";
            Err(Problem::new(ProblemKind::Leased, detail))
        }
        Leased::Gone { oldest } => {
            let channel = &*channel.name;
            warn!(consumer, channel, oldest, "the events after the cursor of a consumer were deleted");
            state.operators.gone(channel);
            Err(Problem::gone_after_cursor(oldest, consumer, channel))
        }
    }
}

/// The body of a commit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    lease: String,
    through: i64,
}

/// `POST /v1/consumers/{consumer}/{channel}/commit`
pub(super) async fn commit(
    State(state): State<Arc<FeedState>>,
    Extension(visitor): Extension<Visitor>,
    path: PathNames<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let (consumer, channel) = consumer_and_channel(&state, visitor, names(path)?)?;
    Parameters::read(request.uri().query(), &[])?;
    let too_large = |_| Problem::new(ProblemKind::TooLarge, format!("the body has more than {MAX_COMMIT} bytes"));
    let body = to_bytes(request.into_body(), MAX_COMMIT).await.map_err(too_large)?;
    let malformed = |_| Problem::invalid("the body must be a JSON object such as {\"lease\":\"…\",\"through\":7}");
    let Commit { lease, through } = serde_json::from_slice(&body).map_err(malformed)?;
    match state.of_table(state.served().table.commit(&consumer, channel.id, &lease, through)).await? {
        Committed::Moved => Ok(StatusCode::NO_CONTENT.into_response()),
        Committed::NotHeld => {
            let detail = "the cursor was not moved: another client may have processed the events; request a new lease";
            Err(Problem::new(ProblemKind::NotLeased, detail))
        }
        Committed::Beyond => Err(Problem::invalid("through must be the position of one of the leased events")),
    }
}

/// The names in the path, if the client may use both.
fn consumer_and_channel(
    state: &FeedState,
    visitor: Visitor,
    (consumer, channel): (String, String),
) -> Result<(Arc<str>, FeedChannel), Problem> {
    let settings = &state.served().settings;
    let consumer = visitor.acts_as(settings, &consumer)?;
    let channel = visitor.channel(settings, &channel)?.clone();
    Ok((consumer, channel))
}
