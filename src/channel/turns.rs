//! Turns: how many ranges of all channels together are asked for and heard at the same time.
//!
//! A range takes a megabyte or two from its answer until its last record is made. Where a thousand channels are behind at
//! once, as after a long stop, all of them would have theirs in memory, to wait for the few processors that hear them.
//!
//! # Invariants
//!
//! * **A turn ends by itself.** It lasts for a request and for checking signatures, and never until somebody takes what was
//!   read: a sink that stands still takes no turn from other channels.
//! * **Memory is worth a wait, not a standstill.** Who has waited for [`PATIENCE`] goes on without a turn.
//! * **Who comes first is first.**

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Turns for each processor: enough that some ranges are heard while the service is asked for others.
const FOR_EACH_PROCESSOR: usize = 8;

/// The longest wait for a turn. Well below what would look like a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// The turns that there are.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Semaphore>);

/// A turn, until it is dropped; or the going on without one.
#[derive(Debug, Default)]
pub(super) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// For a machine with so many processors.
    pub(super) fn new(processors: usize) -> Self {
        Self::of(FOR_EACH_PROCESSOR * processors)
    }

    /// So many.
    pub(super) fn of(turns: usize) -> Self {
        Self(Arc::new(Semaphore::new(turns)))
    }

    /// Waits for a turn, as long as it is worth it.
    pub(super) async fn next(&self) -> Turn {
        let permit = timeout(PATIENCE, self.0.clone().acquire_owned()).await;
        Turn { _permit: permit.ok().map(|permit| permit.expect("nobody closes it")) }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_comes_first_has_the_next_turn() {
        let turns = Turns::of(1);
        let turn = turns.next().await;
        let [mut second, mut third] = [0, 1].map(|_| Box::pin(turns.next()));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        drop(turn);
        assert!(third.as_mut().now_or_never().is_none(), "it is the second's");
        drop(second.await);
        third.await;
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever() {
        let turns = Turns::of(1);
        let (held, began) = (turns.next().await, Instant::now());
        let none = turns.next().await;
        assert_eq!(began.elapsed(), PATIENCE);
        drop(held);
        turns.next().await;
        assert_eq!(began.elapsed(), PATIENCE, "there is one again");
        drop(none);
        assert_eq!(turns.0.available_permits(), 1);
    }
}
