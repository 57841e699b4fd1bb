//! What an instance claims and what it gives up: a pure function of what it sees.
//!
//! # Invariants
//!
//! * **Converges.** Where the same instances live on, every channel has an owner after some rounds, and then nothing moves:
//!   a channel moves only to an instance that owns at least two fewer.
//! * **Even.** Of instances that configure the same channels, none then owns two more than another.
//! * **Given to an instance.** A channel is given up only where an instance that owns fewer configures it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ledger::store::shared::{InstanceId, Ownership, View};
use proof::event::ChannelId;

/// Channels that are given up in one round.
pub const MOST_GIVEN: usize = 16;

/// After so many leases without an owner, any instance that configures a channel claims it: the instance that should have it
/// may not be able to.
pub const ORPHANED_LEASES: u32 = 3;

/// What an instance does next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The channels to claim.
    pub claim: Vec<ChannelId>,
    /// The channels to give up.
    pub give: Vec<ChannelId>,
}

/// What `me` claims and gives up. `giving` is what it is about to give up already. Channels are given up only where the
/// instances have been the same for some time: `is_stable`.
pub fn plan(view: &View, me: InstanceId, giving: &BTreeSet<ChannelId>, is_stable: bool, lease: Duration) -> Plan {
    let mut owned = Counts(view.counts());
    owned.0.entry(me).and_modify(|owned| *owned -= giving.len().min(*owned));
    let claim = claims(view, me, &mut owned, lease * ORPHANED_LEASES);
    let give = if is_stable && giving.is_empty() { gifts(view, me, &mut owned) } else { Vec::new() };
    Plan { claim, give }
}

/// Each orphan is for the instance that then owns fewest. All instances come to the same result, as far as they see the
/// same.
fn claims(view: &View, me: InstanceId, owned: &mut Counts, too_long: Duration) -> Vec<ChannelId> {
    let mut claims = Vec::new();
    for (channel, owner) in &view.channels {
        let Ownership::Orphaned { since } = owner else { continue };
        let Some(next) = owned.fewest(view, channel) else { continue };
        *owned.0.entry(next).or_default() += 1;
        let is_configured = || view.instances.get(&me).is_some_and(|mine| mine.channels.contains(channel));
        if next == me || *since >= too_long && is_configured() {
            claims.push(*channel);
        }
    }
    claims
}

fn gifts(view: &View, me: InstanceId, owned: &mut Counts) -> Vec<ChannelId> {
    let mut gifts = Vec::new();
    for channel in view.owned_by(me) {
        let Some(next) = owned.fewest(view, &channel) else { continue };
        if gifts.len() < MOST_GIVEN && owned.0[&next] + 2 <= owned.0[&me] {
            *owned.0.entry(next).or_default() += 1;
            owned.0.entry(me).and_modify(|owned| *owned -= 1);
            gifts.push(channel);
        }
    }
    gifts
}

/// How many channels each instance owns.
struct Counts(BTreeMap<InstanceId, usize>);

impl Counts {
    /// Of those that configure a channel, the instance that owns fewest. Of equals another one for another channel.
    fn fewest(&self, view: &View, channel: &ChannelId) -> Option<InstanceId> {
        let candidates = view.instances.iter().filter(|(_, it)| it.channels.contains(channel)).map(|(id, _)| *id);
        candidates.min_by_key(|id| (self.0[id], id.as_u128() ^ channel.0.as_u128()))
    }
}

#[cfg(test)]
mod tests;
