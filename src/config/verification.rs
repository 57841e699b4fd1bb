//! Whose signatures count, whose events these are, and what becomes of events without a proof.
//!
//! `[verification]` holds for every channel; `[channels.NAME.verification]` overrides it key by key. An owner given
//! there, in either of its two ways, replaces the one given above.

use std::time::Duration;

use super::keys::{Key, Keys, Reading, Reported};
use super::layers::Layer;
use super::problem::ConfigError;
use super::values::{choice, positive_duration};
use crate::verify::{Address, SignerSet, Verifier, workflow_owner};

/// What a channel asks of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Judges the proofs.
    pub verifier: Verifier,
    /// What becomes of notices that nobody signs.
    pub unsigned: UnsignedPolicy,
    /// Whether later events wait for a late proof.
    pub ordering: Ordering,
    /// How long a late proof is waited for before its event is quarantined. Never zero.
    pub proof_timeout: Duration,
}

/// What becomes of notices that nobody signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsignedPolicy {
    /// They are delivered, marked as such.
    Deliver,
    /// They are counted and passed over.
    Drop,
}

impl UnsignedPolicy {
    const WORDS: [(&str, Self); 2] = [("deliver", Self::Deliver), ("drop", Self::Drop)];
}

/// Whether later events wait for an event whose proof is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// They do not: it is delivered late.
    Available,
    /// They do: nothing overtakes it.
    Strict,
}

impl Ordering {
    const WORDS: [(&str, Self); 2] = [("available", Self::Available), ("strict", Self::Strict)];
}

/// The two ways to name whose events these are.
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
    required: Reading<usize>,
    unsigned: Reading<UnsignedPolicy>,
    ordering: Reading<Ordering>,
    proof_timeout: Reading<Duration>,
}

impl Level {
    pub(super) fn read(keys: &mut Keys, table: Key) -> Self {
        Self {
            owner: read_owner(keys, &table),
            tenant_id: keys.optional(&table.at("tenant_id"), |text| Ok(text.to_owned())),
            signers: read_signers(keys, &table.at("valid_signers")),
            required: keys.optional(&table.at("min_required_signatures"), required),
            unsigned: keys.optional(&table.at("unsigned"), choice(&UnsignedPolicy::WORDS)),
            ordering: keys.optional(&table.at("ordering"), choice(&Ordering::WORDS)),
            proof_timeout: keys.optional(&table.at("proof_timeout"), positive_duration),
            table,
        }
    }

    /// This level over the one that all channels share.
    pub(super) fn over(&self, shared: &Self, keys: &mut Keys) -> Result<Verification, Reported> {
        let verifier = self.verifier(shared, keys);
        let mut missing = |name| keys.missing(&shared.table.at(name));
        Ok(Verification {
            verifier: verifier?,
            unsigned: inherit(&self.unsigned, &shared.unsigned)?.ok_or_else(|| missing("unsigned"))?,
            ordering: inherit(&self.ordering, &shared.ordering)?.ok_or_else(|| missing("ordering"))?,
            proof_timeout: inherit(&self.proof_timeout, &shared.proof_timeout)?
                .ok_or_else(|| missing("proof_timeout"))?,
        })
    }

    fn verifier(&self, shared: &Self, keys: &mut Keys) -> Result<Verifier, Reported> {
        let signers = self.signer_set(shared, keys);
        let tenant_id = inherit(&self.tenant_id, &shared.tenant_id)?;
        let owner = inherit(&self.owner, &shared.owner)?.ok_or_else(|| {
            let (organisation, owner) = (shared.table.at("org_id"), shared.table.at("workflow_owner"));
            let message =
                format!("is missing; set it, or {owner}, or one of them in each channel's verification table");
            keys.wrong(&organisation, message)
        });
        let owner = match owner? {
            Owner::Workflow(address) => address,
            Owner::Organisation(id) => workflow_owner(&id, &tenant_id.unwrap_or_default()),
        };
        Ok(Verifier::new(signers?, owner))
    }

    fn signer_set(&self, shared: &Self, keys: &mut Keys) -> Result<SignerSet, Reported> {
        let signers = inherit(&self.signers, &shared.signers)?;
        let required = inherit(&self.required, &shared.required)?;
        let signers = signers.ok_or_else(|| keys.missing(&shared.table.at("valid_signers")))?;
        let level = if matches!(self.required, Ok(None)) { shared } else { self };
        let key = level.table.at("min_required_signatures");
        let required = required.ok_or_else(|| keys.missing(&key))?;
        SignerSet::new(signers, required)
            .map_err(|error| keys.wrong(&key, format!("{error}; lower it, or list more in valid_signers")))
    }
}

fn inherit<T: Clone>(own: &Reading<T>, shared: &Reading<T>) -> Reading<T> {
    match own {
        Ok(None) => shared.clone(),
        own => own.clone(),
    }
}

fn read_owner(keys: &mut Keys, table: &Key) -> Reading<Owner> {
    let (organisation, owner) = (table.at("org_id"), table.at("workflow_owner"));
    match keys.either(&organisation, &owner)? {
        None => Ok(None),
        Some(key) if *key == organisation => keys.optional(key, org_id),
        Some(key) => keys.optional(key, |text| Ok(Owner::Workflow(address(text)?))),
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

fn required(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "must be a whole number greater than 0, and at most the number of signers".to_owned())
}

fn read_signers(keys: &mut Keys, key: &Key) -> Reading<Vec<Address>> {
    let Some(texts) = keys.list(key)? else { return Ok(None) };
    let mut signers = Vec::with_capacity(texts.len());
    let mut outcome =
        if texts.is_empty() { Err(keys.wrong(key, "is empty; list the network's signers")) } else { Ok(()) };
    for (index, text) in texts.iter().enumerate() {
        let place = index + 1;
        match address(text) {
            Ok(signer) if signers.contains(&signer) => {
                outcome = Err(keys.wrong(key, format!("lists {signer} twice (number {place}); list each signer once")));
            }
            Ok(signer) => signers.push(signer),
            Err(message) => outcome = Err(keys.wrong(key, format!("number {place} {message}"))),
        }
    }
    outcome.map(|()| Some(signers))
}

/// What `channeld verify` is told on its command line instead of in a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerificationFlags<'a> {
    /// `--valid-signers`: addresses with commas between them; the published production set where it is not given.
    pub valid_signers: Option<&'a str>,
    /// `--min-required-signatures`.
    pub min_required_signatures: Option<&'a str>,
    /// `--workflow-owner`.
    pub workflow_owner: Option<&'a str>,
    /// `--org-id`.
    pub org_id: Option<&'a str>,
    /// `--tenant-id`.
    pub tenant_id: Option<&'a str>,
}

/// A verifier from flags, by the rules of `[verification]` and with its defaults. Neither file nor environment is read.
///
/// # Errors
/// Every problem, named by the key that the flag stands for and the flag it came from.
pub fn verification_from_flags(flags: &VerificationFlags<'_>) -> Result<Verifier, ConfigError> {
    let table = Key::new("verification");
    let given = [
        ("--valid-signers", "valid_signers", flags.valid_signers),
        ("--min-required-signatures", "min_required_signatures", flags.min_required_signatures),
        ("--workflow-owner", "workflow_owner", flags.workflow_owner),
        ("--org-id", "org_id", flags.org_id),
        ("--tenant-id", "tenant_id", flags.tenant_id),
    ];
    let mut figment = figment::Figment::from(Layer::defaults());
    for (flag, name, text) in given {
        if let Some(text) = text {
            figment = figment.merge(Layer::value("flag", flag, &table.at(name), text.to_owned()));
        }
    }
    let mut keys = Keys::new(figment, Vec::new());
    let level = Level::read(&mut keys, table);
    let verifier = level.verifier(&level, &mut keys);
    keys.settle(verifier)
}
