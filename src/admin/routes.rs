//! What is answered to whom.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{Sources, exposition};
use crate::control::Report;

/// How long a report may take: it reads the state, which may stand still.
const REPORT: Duration = Duration::from_secs(10);

const PATHS: &str = "channeld serves /livez, /readyz, /status and /metrics\n";

#[derive(Clone)]
struct Answers {
    sources: Sources,
    /// Held by whoever makes a report: one at a time, also where those who asked have gone.
    turn: Arc<Mutex<()>>,
}

/// There is no report, and why.
struct Unknown(String);

pub(super) fn router(sources: Sources) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .fallback(|| async { (StatusCode::NOT_FOUND, PATHS) })
        .layer(middleware::from_fn(read_only))
        .with_state(Answers { sources, turn: Arc::default() })
}

async fn read_only(request: Request, next: Next) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD")]).into_response()
}

async fn livez(State(answers): State<Answers>) -> Response {
    match answers.sources.liveness.check() {
        Ok(()) => "ok\n".into_response(),
        Err(stuck) => (StatusCode::SERVICE_UNAVAILABLE, format!("{stuck}\n")).into_response(),
    }
}

async fn readyz(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    let readiness = match answers.report().await {
        Ok(report) => Readiness { ready: report.ready, reasons: report.reasons },
        Err(Unknown(why)) => Readiness { ready: false, reasons: vec![why] },
    };
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    if wants_json(&headers) {
        return (status, Json(readiness)).into_response();
    }
    let said = if readiness.ready { "ready".to_owned() } else { readiness.reasons.join("\n") };
    (status, said + "\n").into_response()
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    reasons: Vec<String>,
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with("application/json"))
}

async fn status(State(answers): State<Answers>) -> Result<Json<Report>, Unknown> {
    answers.report().await.map(Json)
}

async fn metrics(State(answers): State<Answers>) -> Result<Response, Unknown> {
    let report = answers.report().await?;
    let live = answers.sources.liveness.check().is_ok();
    let text = exposition::text(&answers.sources.metrics, &report, live).map_err(|error| Unknown(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response())
}

impl Answers {
    async fn report(&self) -> Result<Report, Unknown> {
        let operations = self.sources.operations.borrow().clone();
        let report = async {
            let turn = self.turn.clone().lock_owned().await;
            let reported = tokio::task::spawn_blocking(move || {
                let report = operations.report();
                drop(turn);
                report
            });
            reported.await.map_err(|panic| Unknown(panic.to_string()))?.map_err(|refusal| Unknown(refusal.to_string()))
        };
        timeout(REPORT, report).await.unwrap_or_else(|_| Err(Unknown("the state does not answer".to_owned())))
    }
}

impl IntoResponse for Unknown {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, self.0 + "\n").into_response()
    }
}
