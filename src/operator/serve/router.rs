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
//! * **One report at a time** for probes and scrapes, outside the async threads. Requests share a report: see
//!   [`Latest`].
//! * **`/livez` waits for nothing.** It needs no report, and requests for reports never take all connections of the admin
//!   listener.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use bytes::Bytes;
use serde_json::json;
use tokio::sync::{OnceCell, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::exposition;
use super::latest::Latest;
use super::routes::{self, RequestSender};
use crate::api::{ChannelEntry, GetLastHour, LastHour};
use crate::liveness::Liveness;
use crate::{NotReady, NotReadyKind, Operations, Refusal, Report};
use net::tasks::joined;
use telemetry::metrics::Metrics;

/// How long a report can take. A report reads the state, and the state may not answer.
const REPORT: Duration = Duration::from_secs(10);

/// How many requests can wait for a report. The listeners accept more connections.
const WAITING: usize = 32;

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
    latest: Arc<Latest<SharedReport>>,
    waiting: Arc<Semaphore>,
}

/// A report, and its texts as soon as a request has needed them.
struct SharedReport {
    report: Arc<Report>,
    json: OnceCell<Bytes>,
    metrics: OnceCell<Bytes>,
}

/// Returns the routes of the admin listener.
pub(super) fn reading(sources: Sources) -> Router {
    let reports = reports().route("/status", get(status)).route("/hour", get(last_hour));
    reports.fallback(nowhere).with_state(RouterState::of(sources))
}

/// Returns the routes of the control socket.
pub(super) fn complete(sources: Sources) -> Router {
    let requests = routes::routes(sources.operations.clone(), RequestSender::Operator);
    reports().with_state(RouterState::of(sources)).merge(requests)
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
    let not_ready = state.report().await.map_or_else(|why| vec![why], |shared| shared.report.not_ready.clone());
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

async fn status(State(state): State<RouterState>) -> Result<Response, Unavailable> {
    let shared = state.report().await.map_err(unavailable)?;
    let report = shared.report.clone();
    let json = text(&shared.json, move || serde_json::to_vec(&*report)).await.map_err(unavailable)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response())
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
    let shared = state.report().await.map_err(unavailable)?;
    let (report, Sources { liveness, metrics, .. }) = (shared.report.clone(), state.sources.clone());
    let render = move || exposition::text(&metrics, &report, liveness.check().is_ok());
    let text = text(&shared.metrics, render).await.map_err(unavailable)?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

/// Returns the text in the cell. The first request renders it, outside the async threads.
async fn text<T, E>(cell: &OnceCell<Bytes>, render: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<Bytes, E>
where
    T: Into<Bytes> + Send + 'static,
    E: Send + 'static,
{
    let rendered = || async { joined(spawn_blocking(render).await).await.map(Into::into) };
    cell.get_or_try_init(rendered).await.cloned()
}

type Unavailable = (StatusCode, String);

fn unavailable(why: impl Display) -> Unavailable {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
}

impl RouterState {
    fn of(sources: Sources) -> Self {
        Self { sources, latest: Arc::default(), waiting: Arc::new(Semaphore::new(WAITING)) }
    }

    /// Returns a current report. If the state does not answer, or if too many requests wait, returns the reason.
    async fn report(&self) -> Result<Arc<SharedReport>, NotReady> {
        let not_readable = |why: &str| NotReady::new(NotReadyKind::StateNotReadable, why);
        let _waiting = self.waiting.try_acquire().map_err(|_| not_readable("too many requests wait for a report"))?;
        let operations = self.sources.operations.borrow().clone();
        let work = async {
            let report = operations.report().await.map_err(|refusal| not_readable(&refusal.to_string()))?;
            Ok(SharedReport { report: Arc::new(report), json: OnceCell::new(), metrics: OnceCell::new() })
        };
        let report = timeout(REPORT, self.latest.get(work)).await;
        report.unwrap_or_else(|_| Err(not_readable("the state does not answer")))
    }
}

#[cfg(test)]
pub(super) mod tests;
