//! What this instance asks the others, and answers them.
//!
//! # Cancellation
//!
//! A request whose answer is not awaited any more may be carried out all the same. An answer is not finished.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::Seen;
use ledger::StateError;
use ledger::store::shared::{Answer, Asked, InstanceId, Membership, Standing};
use net::Chain;
use proof::event::ChannelId;

/// Between two looks for requests, and for an answer.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Requests of others that are carried out at a time.
const AT_ONCE: usize = 16;

/// The other instances, as an operator's requests reach them.
#[derive(Clone, Debug)]
pub struct Peers {
    /// What this instance has seen of them.
    pub seen: watch::Receiver<Seen>,
    /// The way to them.
    pub membership: Arc<dyn Membership>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The instance has died.
    #[error("it has died; {}", fate(*taken))]
    Died {
        /// Whether it may have carried the request out.
        taken: bool,
    },
    /// It takes too long.
    #[error("it has not answered for {} s; {}", .after.as_secs(), fate(*taken))]
    Silent {
        /// How long it was waited for.
        after: Duration,
        /// Whether it may carry the request out.
        taken: bool,
    },
    /// It cannot be asked.
    #[error(transparent)]
    State(#[from] StateError),
}

fn fate(taken: bool) -> &'static str {
    if taken { "whether it has done what was asked is not known" } else { "it has done nothing of what was asked" }
}

impl Peers {
    /// Asks another instance, and waits no longer than that.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn ask(&self, instance: InstanceId, request: &Asked, wait: Duration) -> Result<Answer, Unanswered> {
        let (id, since) = (self.membership.ask(instance, request).await?, Instant::now());
        loop {
            let is_over = since.elapsed() >= wait;
            match self.membership.look(id, is_over).await {
                Ok(Standing::Answered(answer)) => return Ok(answer),
                Ok(Standing::Ended { taken }) if is_over => return Err(Unanswered::Silent { after: wait, taken }),
                Ok(Standing::Ended { taken }) => return Err(Unanswered::Died { taken }),
                Err(error) if is_over => return Err(error.into()),
                // A database that is away may come back.
                Ok(Standing::Waiting) | Err(_) => sleep(LOOK_AGAIN.min(wait.saturating_sub(since.elapsed()))).await,
            }
        }
    }

    /// The other instance that owns a channel, and its name.
    pub fn owner(&self, channel: ChannelId) -> Option<(InstanceId, String)> {
        let seen = self.seen.borrow();
        let (id, owner) = seen.view.owner(channel).filter(|_| !seen.work.contains(&channel))?;
        (id != self.membership.me()).then(|| (id, owner.name.clone()))
    }
}

/// Answers what others ask of this instance, until it is dropped.
pub async fn answer<F>(membership: Arc<dyn Membership>, carry_out: impl Fn(Asked) -> F) -> Infallible
where
    F: Future<Output = Answer> + Send + 'static,
{
    let mut answering = JoinSet::new();
    loop {
        while answering.try_join_next().is_some() {}
        let asked = if answering.len() < AT_ONCE { membership.take().await } else { Ok(Vec::new()) };
        for (id, request) in asked.unwrap_or_default() {
            let (membership, answer) = (membership.clone(), carry_out(request));
            answering.spawn(async move {
                if let Err(error) = membership.answer(id, &answer.await).await {
                    debug!(error = %Chain(&error), "a request of another instance could not be answered");
                }
            });
        }
        sleep(LOOK_AGAIN).await;
    }
}
