//! Whose signatures count, whose events these are, and what happens to events without a proof.
//!
//! `[verification]` holds for every channel; `[channels.NAME.verification]` overrides it key by key. An owner given
//! there, in either of its two ways, replaces the one given above.

use std::time::Duration;

use figment::Figment;

use super::key::Key;
use super::layers::Layer;
use super::problem::ConfigError;
use super::table::{Merged, Reading, Reported, Table};
use super::values::{positive_duration, word};
use crate::channel::{Ordering, UnsignedPolicy};
use crate::verify::{Address, SignerSet, Verifier, workflow_owner};

/// What the events of a channel must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Verifies the proofs.
    pub verifier: Verifier,
    /// What happens to notices, which never carry a proof.
    pub unsigned: UnsignedPolicy,
    /// Whether later events wait for a late proof.
    pub ordering: Ordering,
    /// How long a late proof is waited for before its event is quarantined. Never zero.
    pub proof_timeout: Duration,
}

/// The two ways to name the owner of the events.
#[derive(Clone, Debug)]
enum Owner {
    Workflow(Address),
    Organisation(String),
}

/// The keys of one table, each as far as it is set there.
pub(super) struct Level {
    table: Key,
    owner: Reading<Owner>,
    tenant_id: Reading<String>,
    signers: Reading<Vec<Address>>,
    signatures: Reading<usize>,
    unsigned: Reading<UnsignedPolicy>,
    ordering: Reading<Ordering>,
    proof_timeout: Reading<Duration>,
}

impl Level {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        Self {
            table: table.key().clone(),
            owner: read_owner(table),
            tenant_id: table.optional("tenant_id", |text| Ok(text.to_owned())),
            signers: read_signers(table),
            signatures: table.optional("min_required_signatures", signatures),
            unsigned: table.optional("unsigned", word),
            ordering: table.optional("ordering", word),
            proof_timeout: table.optional("proof_timeout", positive_duration),
        }
    }

    /// This level over the one that all channels share.
    pub(super) fn over(&self, shared: &Self, merged: &mut Merged) -> Result<Verification, Reported> {
        let verifier = self.verifier(shared, merged);
        let mut table = merged.at(shared.table.clone());
        let unsigned = required(inherit(&self.unsigned, &shared.unsigned), &mut table, "unsigned");
        let ordering = required(inherit(&self.ordering, &shared.ordering), &mut table, "ordering");
        let proof_timeout = inherit(&self.proof_timeout, &shared.proof_timeout);
        let proof_timeout = required(proof_timeout, &mut table, "proof_timeout");
        Ok(Verification {
            verifier: verifier?,
            unsigned: unsigned?,
            ordering: ordering?,
            proof_timeout: proof_timeout?,
        })
    }

    fn verifier(&self, shared: &Self, merged: &mut Merged) -> Result<Verifier, Reported> {
        let signers = self.signer_set(shared, merged);
        let tenant_id = inherit(&self.tenant_id, &shared.tenant_id)?;
        let owner = inherit(&self.owner, &shared.owner)?.ok_or_else(|| {
            let other = shared.table.at("workflow_owner");
            let message =
                format!("is missing; set it, or {other}, or one of them in each channel's verification table");
            merged.at(shared.table.clone()).wrong("org_id", message)
        });
        let owner = match owner? {
            Owner::Workflow(address) => address,
            Owner::Organisation(id) => workflow_owner(&id, &tenant_id.unwrap_or_default()),
        };
        Ok(Verifier::new(signers?, owner))
    }

    fn signer_set(&self, shared: &Self, merged: &mut Merged) -> Result<SignerSet, Reported> {
        let mut table = merged.at(shared.table.clone());
        let signers = inherit(&self.signers, &shared.signers);
        let signatures = inherit(&self.signatures, &shared.signatures)?;
        let signers = required(signers, &mut table, "valid_signers")?;
        let signatures = required(Ok(signatures), &mut table, "min_required_signatures")?;
        SignerSet::new(signers, signatures).map_err(|error| {
            let level = if matches!(self.signatures, Ok(None)) { shared } else { self };
            let message = format!("{error}; lower it, or list more in valid_signers");
            merged.at(level.table.clone()).wrong("min_required_signatures", message)
        })
    }
}

fn inherit<T: Clone>(own: &Reading<T>, shared: &Reading<T>) -> Reading<T> {
    if matches!(own, Ok(None)) { shared.clone() } else { own.clone() }
}

/// A value that must be in the shared `table` where no channel has one of its own.
fn required<T>(value: Reading<T>, table: &mut Table<'_>, name: &str) -> Result<T, Reported> {
    value?.ok_or_else(|| table.missing(name))
}

fn read_owner(table: &mut Table<'_>) -> Reading<Owner> {
    match table.either("org_id", "workflow_owner")? {
        None => Ok(None),
        Some("org_id") => table.optional("org_id", org_id),
        Some(key) => table.optional(key, |text| Ok(Owner::Workflow(address(text)?))),
    }
}

fn org_id(text: &str) -> Result<Owner, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(
            "must be the organisation's id as the service shows it, such as \"org_…\", without spaces".to_owned()
        );
    }
    Ok(Owner::Organisation(text.to_owned()))
}

fn address(text: &str) -> Result<Address, String> {
    text.trim().parse().map_err(|error| format!("is {error}"))
}

fn signatures(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "must be a whole number greater than 0, and at most the number of signers".to_owned())
}

fn read_signers(table: &mut Table<'_>) -> Reading<Vec<Address>> {
    const KEY: &str = "valid_signers";
    let Some(texts) = table.list(KEY)? else { return Ok(None) };
    let mut signers = Vec::with_capacity(texts.len());
    let mut outcome =
        if texts.is_empty() { Err(table.wrong(KEY, "is empty; list the network's signers")) } else { Ok(()) };
    for (number, text) in (1..).zip(&texts) {
        match address(text) {
            Ok(signer) if signers.contains(&signer) => {
                let message = format!("lists {signer} twice (number {number}); list each signer once");
                outcome = Err(table.wrong(KEY, message));
            }
            Ok(signer) => signers.push(signer),
            Err(message) => outcome = Err(table.wrong(KEY, format!("number {number} {message}"))),
        }
    }
    outcome.map(|()| Some(signers))
}

/// A verifier from the flags of `channeld verify`, by the rules of `[verification]` and with its defaults. Neither file
/// nor environment is read. A flag is the key with `--` before it and `-` for `_`.
///
/// # Errors
/// Every problem, named by the key and the flag it came from.
pub fn verification_from_flags<'a>(
    flags: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<Verifier, ConfigError> {
    let table = Key::default().at("verification");
    let layer = |(flag, text): (&str, Option<&str>)| {
        let key = table.at(&flag.trim_start_matches('-').replace('-', "_"));
        text.map(|text| Layer::value("flag", flag, &key, text.to_owned()))
    };
    let figment = flags.into_iter().filter_map(layer).fold(Figment::from(Layer::defaults()), Figment::merge);
    let mut merged = Merged::new(figment, Vec::new());
    let level = Level::read(&mut merged.at(table));
    let verifier = level.verifier(&level, &mut merged);
    merged.settle(verifier)
}
