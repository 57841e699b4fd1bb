//! Warns about recently verified events that a new configuration would reject.

use std::time::Duration;

use jiff::Timestamp;

use crate::config::{Channel, Config};
use channel::{Handles, SignerStatus};
use proof::verify::Verifier;

/// A signer whose last signature is older than this may have been retired.
const LATELY: Duration = Duration::from_secs(24 * 3600);

/// Returns one sentence per channel and reason for which recently verified events would be rejected.
pub(super) fn warnings(before: &Config, after: &Config, handles: &Handles) -> Vec<String> {
    let mut warnings = Vec::new();
    for Channel { channel, verification, .. } in &after.channels {
        let Some(known) = before.channels.iter().find(|known| known.channel.id == channel.id) else { continue };
        let seen = handles.of(channel.id).board().signers_seen_since(Timestamp::now() - LATELY);
        let rejected = rejected(&known.verification.verifier, &verification.verifier, &seen);
        warnings.extend(rejected.into_iter().map(|what| format!("channel {}: {what}", channel.name)));
    }
    warnings
}

fn rejected(before: &Verifier, after: &Verifier, seen: &[SignerStatus]) -> Vec<String> {
    let mut rejected = Vec::new();
    if seen.is_empty() {
        return rejected;
    }
    let (owner, new_owner) = (before.workflow_owner(), after.workflow_owner());
    if owner != new_owner {
        rejected.push(format!(
            "the workflow owner is now {new_owner}, but all events verified recently belong to {owner}: further events of that owner will be rejected (wrong-owner)"
        ));
    }
    let (required, newly_required) = (before.signers().required(), after.signers().required());
    if newly_required > required {
        rejected.push(format!(
            "{newly_required} signatures are now required instead of {required}: events with fewer than {newly_required} will be rejected (too-few-signatures)"
        ));
    }
    let is_gone = |signer: &&SignerStatus| !after.signers().addresses().contains(&signer.signer);
    let gone: Vec<_> = seen.iter().filter(is_gone).map(|gone| gone.signer.to_string()).collect();
    if !gone.is_empty() {
        rejected.push(format!(
            "valid_signers no longer contains {}, which signed events recently: events that need their signatures will be rejected (too-few-signatures)",
            gone.join(", ")
        ));
    }
    rejected
}
