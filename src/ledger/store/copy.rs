//! A whole state, copied from one store to another.
//!
//! # Invariants
//!
//! * **Overwrites nothing.** If the target keeps a complete state already, nothing is copied.
//! * **Verified.** Every entry and every body is read back, and compared.
//! * **Incomplete until verified.** The target is marked before the first entry is written, and until all of them have been
//!   compared. Nothing but another copy opens it meanwhile.
//!
//! # Cancellation
//!
//! At any point: the next copy to the target begins anew.

use std::mem::take;
use std::sync::Arc;

use bytes::Bytes;

use super::{Lease, Outcome, Store};
use crate::{Changes, Entries, Key, Ledger, PROOFS, StateError, Summary, Value};
use proof::event::ChannelId;

/// Entries that are written together at most.
const AT_ONCE: usize = 1_000;

/// No more entries are written together with so many bytes.
const BYTES_AT_ONCE: usize = 8 << 20;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Copied {
    /// Channels.
    pub channels: usize,
    /// Their entries, bodies included.
    pub entries: usize,
}

/// Copies everything that `from` keeps, and compares it. No other process may use either meanwhile. `tell` is told after each
/// channel what is copied, and how many channels there are. What an interrupted copy has left in `to` is removed before.
///
/// # Errors
/// If one of them cannot be used, if `from` keeps nothing or is itself incomplete, if `to` keeps a complete state, or if what was
/// written is not what is read.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    mut tell: impl FnMut(Copied, usize) + Send,
) -> Result<Copied, StateError> {
    let refused = |why: &str| Err(StateError::Unusable(format!("{why}: nothing was copied")));
    if from.is_incomplete().await? {
        return refused("the source is itself an incomplete copy");
    }
    let channels = from.channels().await?;
    if channels.is_empty() {
        return refused("the source keeps no channel");
    }
    if !to.is_incomplete().await? && !to.channels().await?.is_empty() {
        return refused("a state is kept already where this one is to go");
    }
    to.begin_copy().await?;
    let mut copied = Copied::default();
    let all = channels.len();
    for channel in channels.iter().copied() {
        let (source, entries) = claim(from, channel).await?;
        let (ledger, proofs) = Ledger::load(entries.clone(), PROOFS)?;
        let entries = content(entries);
        let (target, _) = claim(to, channel).await?;
        write(from, to, &target, ledger.summary(), &entries).await?;
        if to.is_shared() {
            to.show(channel, &proofs).await?;
        }
        to.release(target).await;
        verify(from, to, channel, &entries).await?;
        from.release(source).await;
        copied.channels += 1;
        copied.entries += entries.len();
        tell(copied, all);
    }
    if to.channels().await? != channels {
        return Err(StateError::Damaged("the channels that were copied are not those that are read".to_owned()));
    }
    to.end_copy().await?;
    Ok(copied)
}

async fn claim(store: &dyn Store, channel: ChannelId) -> Result<(Lease, Entries), StateError> {
    let claimed = store.claim(channel).await?;
    claimed.ok_or_else(|| StateError::Unusable(format!("an instance owns the channel {channel}: stop all of them")))
}

/// Without what each store keeps in its own way.
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
            // As every commit, it leads to a version of its own.
            summary.version += 1;
        }
    }
    commit(to, lease, &summary, changes).await
}

async fn commit(to: &dyn Store, lease: &Lease, summary: &Summary, changes: Changes) -> Result<(), StateError> {
    let group = Arc::new(vec![(lease.clone(), summary.clone().effects(changes))]);
    match to.commit(group).await.pop() {
        Some(Outcome::Ok) => Ok(()),
        Some(Outcome::Unavailable(error) | Outcome::Fatal(error)) => Err(error),
        Some(Outcome::Lost(loss)) => Err(StateError::Unusable(format!(
            "channel {} cannot be copied: {loss}: stop all instances, and run one copy at a time",
            lease.channel
        ))),
        None => Err(StateError::Damaged("a commit was not answered".to_owned())),
    }
}

async fn body(from: &dyn Store, channel: ChannelId, key: &Key) -> Result<Bytes, StateError> {
    let body = from.body(channel, key.clone()).await?;
    body.ok_or_else(|| StateError::Damaged(format!("the body of an event of channel {channel} is not there")))
}

async fn verify(from: &dyn Store, to: &dyn Store, channel: ChannelId, entries: &Entries) -> Result<(), StateError> {
    let differs = || StateError::Damaged(format!("what was copied of channel {channel} is not what is read"));
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
