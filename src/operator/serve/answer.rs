//! Answers the requests of other instances.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::http::StatusCode;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;

use super::routes::{Asker, routes};
use crate::Operations;
use crate::request::{MAX_ANSWER, http_request};
use ledger::store::shared::{Answer, Asked};

/// Answers the requests of other instances, until it is dropped.
pub async fn answer_others(operations: watch::Receiver<Arc<Operations>>) -> Infallible {
    let membership = operations.borrow().cluster.as_ref().map(|peers| peers.membership.clone());
    let Some(membership) = membership else { return pending().await };
    let router = TowerToHyperService::new(routes(operations, Asker::Instance));
    cluster::answer(membership, |request| answer(router.clone(), request)).await
}

async fn answer(router: TowerToHyperService<Router>, request: Asked) -> Answer {
    let failed = |status: StatusCode, what: String| Answer { status: status.as_u16(), body: what.into_bytes() };
    let request = match http_request(request) {
        Ok(request) => request,
        Err(error) => return failed(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let answer = router.call(request).await.unwrap_or_else(|never| match never {});
    let status = answer.status();
    match to_bytes(answer.into_body(), MAX_ANSWER).await {
        Ok(body) => Answer { status: status.as_u16(), body: body.into() },
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
