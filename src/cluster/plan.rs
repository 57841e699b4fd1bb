//! Computes which channels an instance claims and releases, as a pure function of the instance's view of the cluster.
//!
//! # Invariants
//!
//! * **Converges.** If the set of instances does not change, then after some rounds every channel has an owner and no channel
//!   moves any more. The moves end because a channel moves only to an instance that owns at least two fewer channels.
//! * **Even.** When no channel moves any more, the numbers of owned channels differ by at most one among instances with the
//!   same configuration.
//! * **The first decides.** An instance that would verify a channel in another way than the instance that joined first claims
//!   the channel only when the first one is gone. After an outage of the store, the leases of all instances have ended, and any
//!   of them may be the first to return. An instance whose lease has ended therefore decides for some more time.
//! * **Released to an instance.** A channel is released only if it is configured on another instance, and that instance owns
//!   fewer channels.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ledger::store::shared::{ClusterView, InstanceId, Ownership};
use proof::event::ChannelId;

/// The maximum number of channels that are released in one round.
const MOST_RELEASED: usize = 16;

/// If a channel has had no owner for this many lease durations, every instance that configures the channel tries to claim it.
/// The instance that should claim it may be unable to.
const ORPHANED_LEASES: u32 = 3;

/// The number of channels that each instance owns.
type Counts = BTreeMap<InstanceId, usize>;

/// The next actions of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The channels to claim.
    pub(super) claim: Vec<ChannelId>,
    /// The channels to release.
    pub(super) release: Vec<ChannelId>,
}

/// Returns the channels that the instance `me` should claim and release. `releasing` contains the channels that `me` is
/// already releasing. If the set of instances has changed recently, `is_stable` is `false`, and no channel is released.
pub(super) fn plan(
    view: &ClusterView,
    me: InstanceId,
    releasing: &BTreeSet<ChannelId>,
    is_stable: bool,
    lease: Duration,
) -> Plan {
    let mut owned = view.counts();
    owned.entry(me).and_modify(|owned| *owned -= releasing.len().min(*owned));
    let claim = claims(view, me, &mut owned, lease * ORPHANED_LEASES);
    let release = if is_stable && releasing.is_empty() { releases(view, me, &mut owned) } else { Vec::new() };
    Plan { claim, release }
}

/// Assigns each orphaned channel to the instance with the fewest channels, and returns the channels that `me` should claim.
/// All instances with the same view make the same assignment.
fn claims(view: &ClusterView, me: InstanceId, owned: &mut Counts, too_long: Duration) -> Vec<ChannelId> {
    let mut claims = Vec::new();
    for (channel, owner) in &view.channels {
        let Ownership::Orphaned { since } = owner else { continue };
        let Some(next) = fewest(owned, view, channel) else { continue };
        *owned.entry(next).or_default() += 1;
        let is_due = next == me || *since >= too_long && view.may_claim(me, *channel);
        if is_due && !view.defers(me, *channel) {
            claims.push(*channel);
        }
    }
    claims
}

fn releases(view: &ClusterView, me: InstanceId, owned: &mut Counts) -> Vec<ChannelId> {
    let mut releases = Vec::new();
    for channel in view.owned_by(me) {
        let Some(next) = fewest(owned, view, &channel) else { continue };
        if releases.len() < MOST_RELEASED && owned[&next] + 2 <= owned[&me] {
            *owned.entry(next).or_default() += 1;
            owned.entry(me).and_modify(|owned| *owned -= 1);
            releases.push(channel);
        }
    }
    releases
}

/// Returns the instance with the fewest channels among the instances that may claim this channel. Ties are broken
/// differently for each channel.
fn fewest(owned: &Counts, view: &ClusterView, channel: &ChannelId) -> Option<InstanceId> {
    let candidates = view.instances.keys().copied().filter(|id| view.may_claim(*id, *channel));
    candidates.min_by_key(|id| (owned[id], id.as_u128() ^ channel.0.as_u128()))
}

#[cfg(test)]
mod tests;
