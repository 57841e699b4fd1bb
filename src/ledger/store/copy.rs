//! Copies a complete state from one store to another.
//!
//! # Invariants
//!
//! * **Overwrites nothing.** If the target already contains a complete state, nothing is copied.
//! * **Verified.** Every entry and every body is read back and compared.
//! * **Incomplete until verified.** The target is marked as incomplete before the first entry is written. The mark
//!   stays until all entries have been compared. In the meantime only another copy can open the target.
//!
//! # Cancellation
//!
//! Safe at any point. The next copy to the target starts from the beginning.

use std::mem::take;
use std::sync::Arc;

use bytes::Bytes;

use super::{CommitOutcome, Lease, Store};
use crate::rules::Changes;
use crate::{Entries, Key, Ledger, PROOFS, StateError, Summary, Value};
use proof::event::ChannelId;

/// The largest number of entries in a write.
const AT_ONCE: usize = 1_000;

/// When a write has this many bytes, no more entries are added to it.
const BYTES_AT_ONCE: usize = 8 << 20;

/// The number of proofs that are copied at once.
const PROOFS_AT_ONCE: usize = 100;

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CopySummary {
    /// The number of channels.
    pub channels: usize,
    /// The number of entries, including bodies.
    pub entries: usize,
}

/// Copies the complete contents of `from` and compares them. No other process may use either store during the copy.
/// After each channel, `tell` receives the counts of copied channels and entries, and the total number of channels. The
/// leftovers of an interrupted copy in `to` are removed first.
///
/// # Errors
/// If a store cannot be used, if `from` is empty or incomplete, if `to` contains a complete state, or if the entries
/// that are read back differ from the entries that were written.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    mut tell: impl FnMut(CopySummary, usize) + Send,
) -> Result<CopySummary, StateError> {
    let refused = |why: &str| Err(StateError::Unusable(format!("{why}: nothing was copied")));
    if from.is_incomplete().await? {
        return refused("the source is itself an incomplete copy");
    }
    let channels = from.channels().await?;
    if channels.is_empty() {
        return refused("the source contains no channel");
    }
    if !to.is_incomplete().await? && !to.channels().await?.is_empty() {
        return refused("the target already contains a state");
    }
    to.begin_copy().await?;
    let mut copied = CopySummary::default();
    let all = channels.len();
    for channel in channels.iter().copied() {
        let (source, entries) = claim(from, channel).await?;
        let (ledger, proofs) = Ledger::load(entries.clone(), PROOFS).map_err(|error| of_channel(channel, error))?;
        let entries = content(entries);
        let (target, _) = claim(to, channel).await?;
        write(from, to, &target, ledger.summary(), &entries).await?;
        // The oldest first: a store numbers the proofs of one call in any order, and forgets those with the lowest numbers.
        for proofs in proofs.chunks(PROOFS_AT_ONCE) {
            to.show(channel, proofs).await?;
        }
        to.release(target).await;
        verify(from, to, channel, &entries).await?;
        from.release(source).await;
        copied.channels += 1;
        copied.entries += entries.len();
        tell(copied, all);
    }
    if to.channels().await? != channels {
        return Err(StateError::Damaged("the copied channels differ from the channels in the target".to_owned()));
    }
    to.end_copy().await?;
    Ok(copied)
}

async fn claim(store: &dyn Store, channel: ChannelId) -> Result<(Lease, Entries), StateError> {
    let claimed = store.claim(channel).await.map_err(|error| of_channel(channel, error))?;
    claimed.ok_or_else(|| StateError::Unusable(format!("an instance owns the channel {channel}: stop all instances")))
}

/// Adds the channel to the error of an unreadable entry.
fn of_channel(channel: ChannelId, error: StateError) -> StateError {
    match error {
        StateError::UnreadableEntry { .. } => {
            StateError::Unusable(format!("channel {channel} cannot be copied: {error}"))
        }
        other => other,
    }
}

/// Removes the version and the summary, which each store maintains in its own way.
fn content(mut entries: Entries) -> Entries {
    entries.retain(|key, _| !matches!(key, Key::Version | Key::Summary));
    entries
}

async fn write(
    from: &dyn Store,
    to: &dyn Store,
    lease: &Lease,
    mut summary: Summary,
    entries: &Entries,
) -> Result<(), StateError> {
    let (mut changes, mut bytes) = (Changes::new(), 0);
    for (key, value) in entries.iter().rev() {
        let value = match value {
            Value::Bytes(value) => value.clone(),
            Value::Size(_) => body(from, lease.channel, key).await?,
        };
        bytes += value.len();
        changes.push((key.clone(), Some(value)));
        if changes.len() >= AT_ONCE || bytes >= BYTES_AT_ONCE {
            commit(to, lease, &summary, take(&mut changes)).await?;
            bytes = 0;
            // Each commit needs its own version.
            summary.version += 1;
        }
    }
    commit(to, lease, &summary, changes).await
}

async fn commit(to: &dyn Store, lease: &Lease, summary: &Summary, changes: Changes) -> Result<(), StateError> {
    let group = Arc::new(vec![(lease.clone(), summary.clone().effects(changes))]);
    match to.commit(group).await.pop() {
        Some(CommitOutcome::Ok) => Ok(()),
        Some(CommitOutcome::Unavailable(error) | CommitOutcome::Fatal(error)) => Err(error),
        Some(CommitOutcome::Lost(loss)) => Err(StateError::Unusable(format!(
            "channel {} cannot be copied: {loss}: stop all instances, and run one copy at a time",
            lease.channel
        ))),
        None => Err(StateError::Damaged("a commit was not answered".to_owned())),
    }
}

async fn body(from: &dyn Store, channel: ChannelId, key: &Key) -> Result<Bytes, StateError> {
    let body = from.body(channel, key.clone()).await?;
    body.ok_or_else(|| StateError::Damaged(format!("the body of an event of channel {channel} is missing")))
}

async fn verify(from: &dyn Store, to: &dyn Store, channel: ChannelId, entries: &Entries) -> Result<(), StateError> {
    let differs = || StateError::Damaged(format!("the copy of channel {channel} differs from its source"));
    if content(to.entries(channel).await?) != *entries {
        return Err(differs());
    }
    for key in entries.iter().filter(|(_, value)| matches!(value, Value::Size(_))).map(|(key, _)| key) {
        if body(to, channel, key).await? != body(from, channel, key).await? {
            return Err(differs());
        }
    }
    Ok(())
}
