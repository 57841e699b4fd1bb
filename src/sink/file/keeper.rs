//! When closed files are looked after: at the start, after each rotation, and when a time has come.
//!
//! Time of the day is looked at again and again instead of waited for: clocks are set, and machines sleep.
//!
//! # Cancellation
//!
//! The task ends with the sink that it belongs to, at any wait. It does not keep the sink's file open: the next sink at
//! the same path, after the configuration was read again, finds it unlocked.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use super::closed::Shelf;
use super::settings::Rotation;
use super::upkeep::Upkeep;
use super::{Slot, blocking};
use crate::retry::{Retry, RetryPolicy};
use crate::sink::SinkError;
use crate::telemetry::Chain;

/// Between two looks at the clock, at the most.
const CLOCK: Duration = Duration::from_secs(30);

const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// Looks after the closed files of a sink until it has gone.
pub(super) async fn keep(slot: Weak<Mutex<Slot>>, rotation: Rotation, rotated: Arc<Notify>, stop: CancellationToken) {
    let mut retry = Retry::new(RETRY);
    let by_the_clock = rotation.every.is_some() || rotation.keep.time.is_some();
    let clock = by_the_clock.then(|| rotation.every.map_or(CLOCK, |every| every.min(CLOCK)));
    let mut upkeep = Upkeep::new(rotation, stop);
    loop {
        let failed;
        (upkeep, failed) = look(&slot, upkeep).await;
        let wait = if let Some(error) = failed {
            Some(complain(&error, &mut retry))
        } else {
            if retry.attempt() > 0 {
                tracing::info!("closed files are looked after again");
                retry.reset();
            }
            clock
        };
        let time = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { () = rotated.notified() => {}, () = time => {} }
    }
}

/// Says once what keeps closed files from being looked after, and gives the wait until the next attempt.
fn complain(error: &SinkError, retry: &mut Retry) -> Duration {
    let wait = retry.next_wait(None);
    if retry.attempt() == 1 {
        tracing::warn!(wait_ms = wait.as_millis(), error = %Chain(error),
            "closed files cannot be looked after: trying again, events are not affected");
    }
    wait
}

/// Closes the active file if its time has come, and does what there is to do.
async fn look(slot: &Weak<Mutex<Slot>>, mut upkeep: Upkeep) -> (Upkeep, Option<SinkError>) {
    let shelf = match closed_by_now(slot).await {
        Ok(Some(shelf)) => shelf,
        Ok(None) => return (upkeep, None),
        Err(error) => return (upkeep, Some(error)),
    };
    blocking(move || {
        let done = upkeep.look(&shelf);
        (upkeep, done.err())
    })
    .await
}

/// `None` where the file has not been opened yet, or the sink has gone.
async fn closed_by_now(slot: &Weak<Mutex<Slot>>) -> Result<Option<Shelf>, SinkError> {
    let Some(slot) = slot.upgrade() else { return Ok(None) };
    let mut slot = slot.lock_owned().await;
    blocking(move || match &mut slot.journal {
        Some(journal) => journal.by_the_clock(),
        None => Ok(None),
    })
    .await
}
