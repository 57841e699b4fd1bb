//! Maps each path to its answer, for the admin listener and for the control socket.
//!
//! | on | path | answer |
//! |---|---|---|
//! | both | `/livez` | 200 while the process makes progress, otherwise 503 and the part that hangs: see [`Liveness`](crate::liveness) |
//! | both | `/readyz` | 200 if ready, otherwise 503 and the reasons, one per line; JSON for `Accept: application/json` |
//! | both | `/metrics` | Prometheus's text format: see [`metrics`](telemetry::metrics) |
//! | both | `/status` | the [`Report`] of `channeld status --json` |
//! | both | `/hour` | the last hour of the channels, minute by minute: see [`LastHour`] |
//! | socket | all of [`routes`] | lists, events with their bodies, and every change |
//!
//! # Invariants
//!
//! * **The admin listener is read-only** and serves no event: GET and HEAD of these five paths, nothing else.
//! * **One report at a time** for probes and scrapes. A request waits for its turn.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::exposition;
use super::routes::{self, RequestSender};
use crate::api::{ChannelEntry, GetLastHour, LastHour};
use crate::liveness::Liveness;
use crate::{NotReady, NotReadyKind, Operations, Refusal, Report};
use telemetry::metrics::Metrics;

/// How long a report can take. A report reads the state, and the state may not answer.
const REPORT: Duration = Duration::from_secs(10);

const PATHS: &str = "channeld serves /livez, /readyz, /status, /hour and /metrics\n";

/// The data that answers are built from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// For `/livez`.
    pub liveness: Liveness,
    /// The operations of the configuration in force.
    pub operations: watch::Receiver<Arc<Operations>>,
    /// Counters and histograms.
    pub metrics: Metrics,
}

#[derive(Clone)]
struct RouterState {
    sources: Sources,
    reporting: Arc<Mutex<()>>,
}

/// Returns the routes of the admin listener.
pub(super) fn reading(sources: Sources) -> Router {
    let reports = reports().route("/status", get(status)).route("/hour", get(last_hour));
    reports.fallback(nowhere).with_state(RouterState { sources, reporting: Arc::default() })
}

/// Returns the routes of the control socket.
pub(super) fn complete(sources: Sources) -> Router {
    let requests = routes::routes(sources.operations.clone(), RequestSender::Operator);
    reports().with_state(RouterState { sources, reporting: Arc::default() }).merge(requests)
}

fn reports() -> Router<RouterState> {
    Router::new().route("/livez", get(livez)).route("/readyz", get(readyz)).route("/metrics", get(metrics))
}

async fn nowhere(method: Method) -> Response {
    match method {
        Method::GET | Method::HEAD => (StatusCode::NOT_FOUND, PATHS).into_response(),
        _ => (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response(),
    }
}

async fn livez(State(state): State<RouterState>) -> Response {
    match state.sources.liveness.check() {
        Ok(()) => "ok\n".into_response(),
        Err(stuck) => (StatusCode::SERVICE_UNAVAILABLE, format!("{stuck}\n")).into_response(),
    }
}

async fn readyz(State(state): State<RouterState>, headers: HeaderMap) -> Response {
    let not_ready = state.report().await.map_or_else(|why| vec![why], |report| report.not_ready);
    let ready = not_ready.is_empty();
    let reasons: Vec<_> = not_ready.iter().map(ToString::to_string).collect();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if wants_json(&headers) {
        return (status, Json(json!({ "ready": ready, "reasons": reasons, "not_ready": not_ready }))).into_response();
    }
    let text = if ready { "ready".to_owned() } else { reasons.join("\n") };
    (status, text + "\n").into_response()
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("application/json"))
}

async fn status(State(state): State<RouterState>) -> Result<Json<Report>, Unavailable> {
    state.report().await.map(Json).map_err(unavailable)
}

/// Returns the last hour as only this instance has seen it. A request that names no channel is for all channels.
async fn last_hour(
    State(state): State<RouterState>,
    Query(request): Query<GetLastHour>,
) -> Result<Json<Vec<ChannelEntry<LastHour>>>, Refusal> {
    let operations = state.sources.operations.borrow().clone();
    operations.last_hour_here(&request).map(Json)
}

async fn metrics(State(state): State<RouterState>) -> Result<Response, Unavailable> {
    let report = state.report().await.map_err(unavailable)?;
    let live = state.sources.liveness.check().is_ok();
    let text = exposition::text(&state.sources.metrics, &report, live).map_err(unavailable)?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

type Unavailable = (StatusCode, String);

fn unavailable(why: impl Display) -> Unavailable {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

impl RouterState {
    /// Returns a current report. If the state does not answer, returns the reason.
    async fn report(&self) -> Result<Report, NotReady> {
        let operations = self.sources.operations.borrow().clone();
        let not_readable = |why: String| NotReady::new(NotReadyKind::StateNotReadable, why);
        let report = async {
            let _reporting = self.reporting.lock().await;
            operations.report().await.map_err(|refusal| not_readable(refusal.to_string()))
        };
        timeout(REPORT, report).await.unwrap_or_else(|_| Err(not_readable("the state does not answer".to_owned())))
    }
}

#[cfg(test)]
pub(super) mod tests;
