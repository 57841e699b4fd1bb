//! Sends requests to the other instances, and answers requests from them. A request may be executed even if its sender no
//! longer waits for the answer. If the future of [`answer`] is dropped, the requests in progress are aborted.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::ClusterState;
use ledger::StateError;
use ledger::store::shared::{ForwardedRequest, ForwardedResponse, InstanceId, Membership, RequestState};
use net::Chain;
use proof::event::ChannelId;

/// The wait between two checks for new requests, and between two checks for an answer.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long the withdrawal of an unanswered request may take.
const WITHDRAWAL: Duration = Duration::from_secs(2);

/// The maximum number of requests from other instances that this instance executes at the same time.
const AT_ONCE: usize = 16;

/// Forwards an operator's requests to the other instances.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The state of the cluster as this instance sees it.
    pub seen: watch::Receiver<ClusterState>,
    /// Sends the requests.
    pub membership: Arc<dyn Membership>,
}

/// Why no answer arrived.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The instance has died.
    #[error("it has died; {}", fate(*taken))]
    Died {
        /// Whether the instance may have executed the request.
        taken: bool,
    },
    /// The instance did not answer in time.
    #[error("it has not answered for {} s; {}", .after.as_secs(), fate(*taken))]
    Silent {
        /// How long the sender waited for the answer.
        after: Duration,
        /// Whether the instance may have executed the request, or may still execute it.
        taken: bool,
    },
    /// The request could not be sent, or the answer could not be read.
    #[error(transparent)]
    State(#[from] StateError),
}

fn fate(taken: bool) -> &'static str {
    if taken { "the request may or may not have been executed" } else { "the request was not executed" }
}

impl Peers {
    /// Sends a request to another instance, and waits for the answer for at most `wait`.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn ask(
        &self,
        instance: InstanceId,
        request: &ForwardedRequest,
        wait: Duration,
    ) -> Result<ForwardedResponse, Unanswered> {
        let since = Instant::now();
        // The other instance executes a request only after its sender has looked for the answer once.
        let Ok(id) = timeout(wait, self.membership.ask(instance, request)).await else {
            return Err(Unanswered::Silent { after: wait, taken: false });
        };
        let id = id?;
        loop {
            let is_over = since.elapsed() >= wait;
            let left = if is_over { WITHDRAWAL } else { wait.saturating_sub(since.elapsed()) };
            match timeout(left, self.membership.look(id, is_over)).await {
                Ok(Ok(RequestState::Answered(answer))) => return Ok(answer),
                Ok(Ok(RequestState::Ended { taken })) if is_over => {
                    return Err(Unanswered::Silent { after: wait, taken });
                }
                Ok(Ok(RequestState::Ended { taken })) => return Err(Unanswered::Died { taken }),
                Ok(Err(error)) if is_over => return Err(error.into()),
                Err(_) if is_over => return Err(Unanswered::Silent { after: wait, taken: true }),
                // An unavailable database may become available again.
                Ok(Ok(RequestState::Waiting) | Err(_)) | Err(_) => {
                    sleep(LOOK_AGAIN.min(wait.saturating_sub(since.elapsed()))).await;
                }
            }
        }
    }

    /// Returns the id and the name of the instance that owns a channel. Returns `None` if the owner is this instance, or if
    /// the channel has no owner.
    pub fn owner(&self, channel: ChannelId) -> Option<(InstanceId, String)> {
        let seen = self.seen.borrow();
        let (id, owner) = seen.view.owner(channel).filter(|_| !seen.work.contains(&channel))?;
        (id != self.membership.me()).then(|| (id, owner.name.clone()))
    }
}

/// Answers the requests of other instances until the returned future is dropped.
pub async fn answer<F>(membership: Arc<dyn Membership>, carry_out: impl Fn(ForwardedRequest) -> F) -> Infallible
where
    F: Future<Output = ForwardedResponse> + Send + 'static,
{
    let mut answering = JoinSet::new();
    loop {
        while answering.try_join_next().is_some() {}
        let asked = if answering.len() < AT_ONCE { membership.take().await } else { Ok(Vec::new()) };
        for (id, request) in asked.unwrap_or_default() {
            let (membership, answer) = (membership.clone(), carry_out(request));
            answering.spawn(async move {
                if let Err(error) = membership.answer(id, &answer.await).await {
                    debug!(error = %Chain(&error), "a request from another instance could not be answered");
                }
            });
        }
        sleep(LOOK_AGAIN).await;
    }
}
