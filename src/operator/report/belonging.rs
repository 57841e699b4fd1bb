//! Reports proofs and workflows that appeared in two channels. A proof belongs to at most one of them. A workflow can belong
//! to both.

use std::sync::Arc;

use crate::operations::{ConfiguredChannel, by_id};
use channel::{ChannelStatus, Named, RecentEvents, RejectionReason, SharedProofs, SharedWorkflow};
use ledger::{HeldBack, Ledger};
use proof::event::ChannelId;
use proof::verify::Hash;

/// The proofs and workflows that one channel's ledger shares with other channels.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// One entry per channel that showed some of the proofs too.
    proofs: Vec<HeldBack>,
    workflows: Vec<(Hash, ChannelId, i64)>,
}

impl Shared {
    pub(crate) fn of(channel: &ConfiguredChannel, ledger: &Ledger, recent: &RecentEvents) -> Self {
        let is_expected = |id: &Hash| {
            let mut lists = channel.expect.lists();
            lists.any(|(what, values)| what == Named::WorkflowId && values.contains(&id.to_string()))
        };
        let shown = ledger.workflows().iter().map(|(id, shown)| (Hash(*id), shown));
        let workflows = shown.filter_map(|(id, shown)| Some((id, shown.first_in?, shown.since)));
        let elsewhere = |digest: &_| recent.shown_in(digest).filter(|place| place.channel_id != channel.channel.id);
        Self { proofs: ledger.held_back(elsewhere), workflows: workflows.filter(|(id, ..)| !is_expected(id)).collect() }
    }

    /// Returns the entries of another instance's ledger, as far as they concern the channels here.
    pub(crate) fn elsewhere(held_back: Option<&Vec<HeldBack>>) -> Self {
        Self { proofs: held_back.cloned().unwrap_or_default(), workflows: Vec::new() }
    }
}

/// Reports to each channel the proofs and workflows that it shares with others. If a channel runs elsewhere, the instance
/// there reports them.
pub(crate) fn tell(known: &[ConfiguredChannel], shared: &[Shared], channels: &mut [ChannelStatus]) {
    let name = |id| by_id(known, id).name;
    for (at, (Shared { proofs, workflows }, later)) in shared.iter().zip(known).enumerate() {
        for HeldBack { events, offset, original, reason, digest } in proofs {
            let of = |other: Arc<str>, offset, other_offset, held_back| SharedProofs {
                other,
                events: *events,
                offset,
                other_offset,
                digest: digest.clone(),
                held_back,
                reason: reason.clone(),
            };
            let first_in = original.channel_id;
            let mut tell = |channel: ChannelId, shared| {
                let is_here = |known: &&mut ChannelStatus| known.channel_id == channel && known.activity.is_here();
                if let Some(known) = channels.iter_mut().find(is_here) {
                    known.shared_proofs.push(shared);
                }
            };
            tell(later.channel.id, of(name(first_in), *offset, original.offset, true));
            tell(first_in, of(later.channel.name.clone(), original.offset, *offset, false));
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

/// Returns the reason why a channel is not ready, and the action to take.
pub(crate) fn reason(channel: &str, shared: &SharedProofs) -> String {
    let SharedProofs { other, events, offset, other_offset, digest, held_back, reason } = shared;
    let first = format!("first offset {offset}, there {other_offset}, proof {digest}");
    if *held_back && reason != RejectionReason::ProofOfChannel.name() {
        return format!(
            "{events} of its events were delivered in channel {other} too ({first}), and are quarantined here ({reason}): \
             where that is right, `channeld quarantine drop {channel} --reason {reason}`; where they are this channel's, \
             correct `[channels.{channel}.expect]`, reload, and `channeld quarantine retry {channel} --all \
             --reason {reason}`"
        );
    }
    if *held_back {
        return format!(
            "{events} of its events have a proof that channel {other} showed before ({first}), and are quarantined: where they \
             are this channel's, `channeld channels pin {channel}`, and with `--apply` once its values are right; where not, `channeld quarantine drop {channel} --reason proof-of-channel`"
        );
    }
    format!(
        "{events} of its events have a proof that channel {other} showed too ({first}), where they are quarantined: decide \
         whose they are, in channel {other}"
    )
}
