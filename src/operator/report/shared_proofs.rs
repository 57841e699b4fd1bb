//! Reports proofs and workflows that appeared in two channels. A proof belongs to at most one channel. A workflow can
//! belong to both channels.

use crate::configured::{ConfiguredChannel, by_id};
use channel::{ChannelStatus, RejectionReason, SharedProofs, SharedWorkflow, SignedField};
use ledger::{Ledger, QuarantinedDuplicates};
use proof::verify::Hash;

/// Returns the workflows of a channel that appeared first in another channel. Workflows that the channel's `expect`
/// lists are left out.
pub(super) fn shared_workflows(
    channel: &ConfiguredChannel,
    ledger: &Ledger,
    known: &[ConfiguredChannel],
) -> Vec<SharedWorkflow> {
    let is_expected = |id: &String| {
        let mut lists = channel.expect.lists();
        lists.any(|(what, values)| what == SignedField::WorkflowId && values.contains(id))
    };
    let workflows = ledger.workflows().iter().filter_map(|(id, shown)| {
        let (workflow_id, first_in) = (Hash(*id).to_string(), by_id(known, shown.first_in?).name);
        Some(SharedWorkflow { workflow_id, first_in, since: shown.since })
    });
    workflows.filter(|shared| !is_expected(&shared.workflow_id)).collect()
}

/// Adds the duplicates of each channel to the status of that channel, and to the status of the channel in which the
/// proof appeared first. A channel that runs in another instance is skipped here, because that instance reports its
/// duplicates.
pub(super) fn report(
    known: &[ConfiguredChannel],
    duplicates: Vec<Vec<QuarantinedDuplicates>>,
    channels: &mut [ChannelStatus],
) {
    for (duplicates, ConfiguredChannel { channel: later, .. }) in duplicates.into_iter().zip(known) {
        for QuarantinedDuplicates { events, offset, original, reason, digest } in duplicates {
            let first = by_id(known, original.channel_id);
            let other_offset = original.offset;
            let in_later = SharedProofs {
                other: first.name,
                events,
                offset,
                other_offset,
                digest,
                quarantined: true,
                held_back: true,
                reason,
            };
            let in_first = SharedProofs {
                other: later.name.clone(),
                offset: other_offset,
                other_offset: offset,
                quarantined: false,
                held_back: false,
                ..in_later.clone()
            };
            for (id, shared) in [(later.id, in_later), (first.id, in_first)] {
                let is_here = |known: &&mut ChannelStatus| known.channel_id == id && known.activity.is_here();
                if let Some(known) = channels.iter_mut().find(is_here) {
                    known.shared_proofs.push(shared);
                }
            }
        }
    }
}

/// Returns the reason why a channel is not ready, and the action to take.
pub(super) fn reason(channel: &str, shared: &SharedProofs) -> String {
    let SharedProofs { other, events, offset, other_offset, digest, quarantined, reason, held_back: _ } = shared;
    let first = format!("the first is at offset {offset} here and at offset {other_offset} there, proof {digest}");
    if *quarantined && reason != RejectionReason::ProofOfChannel.name() {
        return format!(
            "{events} of its events were also delivered in channel {other} ({first}), and are quarantined here ({reason}): \
             if they belong to channel {other}, run `channeld quarantine drop {channel} --reason {reason}`; if they belong \
             to this channel, correct `[channels.{channel}.expect]`, reload the configuration, and run `channeld \
             quarantine retry {channel} --all --reason {reason}`"
        );
    }
    if *quarantined {
        return format!(
            "{events} of its events have a proof that appeared in channel {other} before ({first}), and are quarantined: if \
             they belong to this channel, run `channeld channels pin {channel}`, check the values, and run the command again with \
             `--apply`; otherwise run `channeld quarantine drop {channel} --reason proof-of-channel`"
        );
    }
    format!(
        "{events} of its events have a proof that also appeared in channel {other} ({first}), where they are quarantined: \
         decide in channel {other} which channel they belong to"
    )
}
