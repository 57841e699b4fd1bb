//! Asks other instances: the owner of a request's channel, or all of them.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::request::{asked, decode};
use crate::{Operations, Refusal, Request};
use cluster::{Peers, Unanswered};
use ledger::store::shared::Answer;
use net::Chain;

/// How long to wait for another instance, so that an instance that hangs does not block the status.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

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

/// Returns the answer of each other instance with the instance's name, or the reason why it did not answer.
pub(crate) async fn ask_others<R: Request>(peers: &Peers, request: &R) -> Vec<(String, Result<R::Answer, String>)>
where
    R::Answer: Send + 'static,
{
    let (view, mut asking) = (peers.seen.borrow().view.clone(), JoinSet::new());
    for (id, instance) in view.instances.iter().filter(|(_, instance)| instance.shares()) {
        let (peers, id, name, request) = (peers.clone(), *id, instance.name.clone(), asked(request));
        if id == peers.membership.me() {
            continue;
        }
        asking.spawn(async move {
            let answer = match peers.ask(id, &request, STATUS_PATIENCE).await {
                Ok(answer) => decode(StatusCode::from_u16(answer.status).unwrap_or_default(), &answer.body)
                    .map_err(|refusal| refusal.to_string()),
                Err(error) => Err(format!("its status is unknown: {}", Chain(&error))),
            };
            (name, answer)
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    answers
}
