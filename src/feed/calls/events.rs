//! `GET /v1/channels/{name}/events`: the events after a position, for clients that store their own position.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::time::Instant;

use crate::access::Visitor;
use crate::calls::answer;
use crate::calls::parameters::{Parameters, PathNames, names};
use crate::problem::Problem;
use crate::state::{EventRange, FeedState};

pub(super) async fn events(
    State(state): State<Arc<FeedState>>,
    Extension(visitor): Extension<Visitor>,
    name: PathNames<String>,
    request: Request,
) -> Result<Response, Problem> {
    let channel = visitor.channel(&state.served().settings, &names(name)?)?.clone();
    let Parameters { after, limit, wait } = Parameters::read(request.uri().query(), &["after", "limit", "wait"])?;
    // The memory of the request is freed before a wait that can be long.
    drop(request);
    let after = match after {
        Some(after) => after,
        None => state.before_oldest(&channel).await?,
    };
    let request = EventRange { visitor, channel, after, limit, max_bytes: state.memory.max_page() };
    let page = state
        .page_before(&request, Instant::now() + wait)
        .await
        .inspect_err(|problem| state.note(&request, problem))?;
    let next = page.events.last().map_or(after, |event| event.position);
    Ok(answer::events("", page, &format!(",\"next\":{next}")))
}
