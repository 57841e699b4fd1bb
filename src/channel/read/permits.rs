//! How many ranges, of all channels together, are requested and checked at the same time.
//!
//! A range takes a megabyte or two of memory from its answer until its last record is made. After a long stop a thousand
//! channels may be behind at once. Without a bound, all of their ranges would be in memory, waiting for a few processors.
//!
//! # Invariants
//!
//! * **A permit is given back soon.** It is held for a request and for checking signatures, and never until what was read
//!   is taken: a sink that stands still takes no permit from other channels.
//! * **Bounded.** A channel that has waited for [`MAX_WAIT`] proceeds without a permit.
//! * **In order.** Permits are granted in order of arrival.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Permits for each processor: enough that some ranges are checked while the service is asked for others.
pub(crate) const FOR_EACH_PROCESSOR: usize = 8;

/// The longest wait for a permit.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// A permit, held until it is dropped; `None` for a channel that proceeds without one.
pub(crate) type ReadPermit = Option<OwnedSemaphorePermit>;

/// Waits for one of the permits of all channels, at most [`MAX_WAIT`].
pub(crate) async fn next(permits: &Arc<Semaphore>) -> ReadPermit {
    let permit = timeout(MAX_WAIT, permits.clone().acquire_owned()).await.ok();
    permit.map(|permit| permit.expect("the semaphore is never closed"))
}

#[cfg(test)]
mod tests;
