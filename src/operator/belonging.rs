//! What was shown in two channels: proofs, which are right in at most one, and workflows, which may be right in both.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ConfiguredChannel, by_id};
use crate::channel::{Alarm, ChannelStatus, Named, SharedProofs, SharedWorkflow};
use crate::event::ChannelId;
use crate::ledger::{Ledger, Place, Quarantined};
use crate::verify::Hash;

/// What one channel's ledger says of others.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// By the channel that showed them first: how many, and the first of them.
    proofs: BTreeMap<ChannelId, (u64, Quarantined, Place)>,
    workflows: Vec<(Hash, ChannelId, i64)>,
}

impl Shared {
    pub(super) fn of(channel: &ConfiguredChannel, ledger: &Ledger) -> Self {
        let mut proofs = BTreeMap::new();
        for facts in ledger.quarantined().values().filter(|facts| facts.reason == Alarm::PROOF_OF_CHANNEL) {
            let Some(original) = facts.original else { continue };
            proofs.entry(original.channel_id).or_insert_with(|| (0, facts.clone(), original)).0 += 1;
        }
        let is_expected = |id: &Hash| {
            let mut lists = channel.expect.lists();
            lists.any(|(what, values)| what == Named::WorkflowId && values.contains(&id.to_string()))
        };
        let shown = ledger.workflows().iter().map(|(id, shown)| (Hash(*id), shown));
        let workflows = shown.filter_map(|(id, shown)| Some((id, shown.first_in?, shown.since)));
        Self { proofs, workflows: workflows.filter(|(id, ..)| !is_expected(id)).collect() }
    }
}

/// Tells each channel what it has in common with others.
pub(super) fn tell(known: &[ConfiguredChannel], shared: &[Shared], channels: &mut [ChannelStatus]) {
    let name = |id| by_id(known, id).name;
    for (at, (Shared { proofs, workflows }, later)) in shared.iter().zip(known).enumerate() {
        for (first_in, (events, facts, original)) in proofs {
            let digest = facts.digest.clone().unwrap_or_default();
            let of = |other: Arc<str>, offset, other_offset, held_back| SharedProofs {
                other,
                events: *events,
                offset,
                other_offset,
                digest: digest.clone(),
                held_back,
            };
            channels[at].shared_proofs.push(of(name(*first_in), facts.offset, original.offset, true));
            if let Some(first) = channels.iter_mut().find(|channel| channel.channel_id == *first_in) {
                first.shared_proofs.push(of(later.channel.name.clone(), original.offset, facts.offset, false));
            }
        }
        channels[at].shared_workflows = workflows
            .iter()
            .map(|(id, first_in, since)| SharedWorkflow {
                workflow_id: id.to_string(),
                first_in: name(*first_in),
                since: *since,
            })
            .collect();
    }
}

/// Why a channel is not ready, and what to do.
pub(super) fn reason(channel: &str, shared: &SharedProofs) -> String {
    let SharedProofs { other, events, offset, other_offset, digest, held_back } = shared;
    let first = format!("first offset {offset}, there {other_offset}, proof {digest}");
    if *held_back {
        return format!(
            "{events} of its events have a proof that channel {other} showed before ({first}), and are quarantined: where they \
             are this channel's, `channeld channels pin {channel}`, reload, and `channeld quarantine retry {channel} --all \
             --reason proof-of-channel`; where not, `channeld quarantine drop {channel} --reason proof-of-channel`"
        );
    }
    format!(
        "{events} of its events have a proof that channel {other} showed too ({first}), where they are quarantined: decide \
         whose they are, in channel {other}"
    )
}
