//! The five calls of the feed, and the checks that every request passes.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde_json::json;
use tracing::warn;

use operator::feed::FeedCall;
use operator::server::Peer;

pub(crate) mod answer;
mod consumers;
mod events;
pub(crate) mod parameters;
mod stream;

use crate::access::Visitor;
use crate::problem::{Problem, ProblemKind};
use crate::state::FeedState;
use crate::state::limits::CountedBody;

use parameters::Parameters;

/// Returns the routes of the feed.
pub(crate) fn router(state: Arc<FeedState>) -> Router {
    Router::new()
        .route("/v1/channels", get(channels))
        .route("/v1/channels/{name}/events", get(events::events))
        .route("/v1/channels/{name}/stream", get(stream::stream))
        .route("/v1/consumers/{consumer}/{channel}/lease", post(consumers::lease))
        .route("/v1/consumers/{consumer}/{channel}/commit", post(consumers::commit))
        .fallback(nowhere)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(state.clone(), admit))
        .with_state(state)
}

/// Admits requests with a valid token while their number is within the limits.
async fn admit(State(state): State<Arc<FeedState>>, request: Request, next: Next) -> Response {
    let call = call_of(request.uri().path());
    let mut response = admitted(&state, request, next).await.unwrap_or_else(IntoResponse::into_response);
    state.operators.answered(call, response.status());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The call to which a path belongs.
fn call_of(path: &str) -> FeedCall {
    let segments: Vec<_> = path.split('/').skip(1).take(6).collect();
    match *segments {
        ["v1", "channels"] => FeedCall::Channels,
        ["v1", "channels", _, "events"] => FeedCall::Events,
        ["v1", "channels", _, "stream"] => FeedCall::Stream,
        ["v1", "consumers", _, _, "lease"] => FeedCall::Lease,
        ["v1", "consumers", _, _, "commit"] => FeedCall::Commit,
        _ => FeedCall::Other,
    }
}

async fn admitted(state: &Arc<FeedState>, mut request: Request, next: Next) -> Result<Response, Problem> {
    let settings = &state.served().settings;
    let peer = request.extensions().get::<Peer>().and_then(|Peer(peer)| *peer);
    let known =
        Visitor::of(request.headers(), state.is_local).and_then(|visitor| Ok((visitor, visitor.consumer(settings)?)));
    let (visitor, consumer) =
        known.inspect_err(|_| warn!(peer = peer.map(display), "a request to the feed has no valid token: refused"))?;
    if state.stop.is_cancelled() {
        return Err(Problem::busy("channeld stops: try again"));
    }
    let most = settings.connections.min(state.most_requests);
    let name = consumer.map(|consumer| consumer.name.clone());
    let in_progress = state.requests.begin(name, most, settings.connections_per_consumer)?;
    request.extensions_mut().insert(visitor);
    let response = next.run(request).await;
    Ok(response.map(|body| Body::new(CountedBody { body, _request: in_progress })))
}

async fn nowhere() -> Problem {
    Problem::new(ProblemKind::NotFound, "the feed has no such path: channeld schema feed prints its description")
}

async fn wrong_method(request: Request) -> Response {
    let path = request.uri().path();
    let allowed = if path.starts_with("/v1/consumers/") { "POST" } else { "GET, HEAD" };
    let problem = Problem::new(ProblemKind::MethodNotAllowed, format!("this path allows only: {allowed}"));
    ([(header::ALLOW, allowed)], problem).into_response()
}

/// `GET /v1/channels`: the channels that the client may read, with their newest positions.
async fn channels(
    State(state): State<Arc<FeedState>>,
    Extension(visitor): Extension<Visitor>,
    request: Request,
) -> Result<Response, Problem> {
    Parameters::read(request.uri().query(), &[])?;
    let served = state.served();
    let channels = visitor.channels(&served.settings)?;
    let newest: HashMap<_, _> = match &*channels {
        [] => HashMap::new(),
        [channel] => HashMap::from([(channel.id, state.of_table(served.table.newest(channel.id)).await?.newest)]),
        _ => {
            let known = state.of_table(served.table.channels()).await?;
            known.into_iter().map(|known| (known.channel, known.position.newest)).collect()
        }
    };
    let listed = channels.iter().map(|channel| {
        // The table has no position of a channel without events.
        let position = newest.get(&channel.id).copied().unwrap_or_default();
        json!({ "name": &*channel.name, "id": channel.id.to_string(), "position": position })
    });
    Ok(Json(json!({ "channels": listed.collect::<Vec<_>>() })).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_counts_as_one_call() {
        for (path, call) in [
            ("/v1/channels", FeedCall::Channels),
            ("/v1/channels/a/events", FeedCall::Events),
            ("/v1/channels/a/stream", FeedCall::Stream),
            ("/v1/consumers/a/b/lease", FeedCall::Lease),
            ("/v1/consumers/a/b/commit", FeedCall::Commit),
            ("/", FeedCall::Other),
            ("/v1/channels/", FeedCall::Other),
            ("/v1/channels/a/b/events", FeedCall::Other),
            ("/v1/consumers/a/b/commit/", FeedCall::Other),
            ("//////////", FeedCall::Other),
        ] {
            assert_eq!(call_of(path), call, "{path}");
        }
    }
}
