//! Forwards commands to the instance that owns their channel.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::http::StatusCode;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::serve::client::{MAX_ANSWER, asked, decode, http_request};
use crate::serve::request::{Asker, routes};
use crate::{Operations, Refusal, Request};
use cluster::{self, Unanswered};
use ledger::store::shared::{Answer, Asked};
use net::Chain;

/// How long an operator waits for the owner of a channel, and for a channel to get an owner.
const PATIENCE: Duration = Duration::from_secs(30);

/// The wait before a request is retried while its channel moves from one instance to another.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Operations {
    /// Carries out a request here. If another instance owns its channel, carries it out there.
    ///
    /// # Errors
    /// [`Refusal`]: why the request was not carried out.
    pub async fn carry_out<R: Request>(&self, request: &R) -> Result<R::Answer, Refusal> {
        let since = Instant::now();
        loop {
            let (channel, owner, name, peers) = match (request.perform(self).await, &self.cluster) {
                (Err(Refusal::Elsewhere { channel, owner, name }), Some(peers)) => (channel, owner, name, peers),
                (done, _) => return done,
            };
            let left = PATIENCE.saturating_sub(since.elapsed());
            let answer = peers.ask(owner, &asked(request), left).await;
            let is_over = since.elapsed() >= PATIENCE;
            match answer {
                // Another instance owns the channel by now, or will own it soon.
                Ok(Answer { status, .. }) if status == StatusCode::MISDIRECTED_REQUEST && !is_over => {}
                Err(Unanswered::Died { taken: false }) if !is_over => {}
                Ok(Answer { status, body }) => {
                    return decode(StatusCode::from_u16(status).unwrap_or_default(), &body);
                }
                Err(error) => {
                    let error = Chain(&error);
                    return Err(Refusal::Failed(format!("channel {channel} is owned by instance {name}: {error}")));
                }
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

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
