//! The accepted signers, the owner of the events, and the handling of events without a proof.
//!
//! `[verification]` applies to every channel. `[channels.NAME.verification]` overrides it key by key. An owner in the
//! channel's table, set by either of the two keys, replaces the shared owner.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::reading::values::{positive_duration, word};
use crate::config::reading::{Reading, Reported, Section};
use ::channel::Verification;
use ::operator::SignerNames;
use proof::verify::{Address, SignerSet, Verifier, workflow_owner};

/// The two ways to name the owner of the events.
#[derive(Clone, Debug)]
enum Owner {
    Workflow(Address),
    Organisation(String),
}

/// The largest number of characters in a signer's name.
const LONGEST_NAME: usize = 64;

/// Reads `[verification.signer_names]`: the displayed names of signers.
pub(crate) fn signer_names(root: &Section<'_>) -> Result<SignerNames, Reported> {
    let table = root.section("verification").section("signer_names");
    let (mut names, mut outcome) = (BTreeMap::new(), Ok(()));
    for key in table.names()? {
        let signer = address(&key).map_err(|message| table.wrong(&key, message));
        match (signer, table.quoted(&key, signer_name)) {
            // The shipped addresses are lower-case. The same address in another case is the operator's, and it sorts
            // first.
            (Ok(signer), Ok(Some(name))) => drop(names.entry(signer).or_insert(name)),
            (Err(reported), _) | (_, Err(reported)) => outcome = Err(reported),
            (Ok(_), Ok(None)) => {}
        }
    }
    outcome.map(|()| names)
}

fn signer_name(text: &str) -> Result<String, String> {
    let (name, length) = (text.trim(), text.trim().chars().count());
    if (1..=LONGEST_NAME).contains(&length) && !name.contains(char::is_control) {
        return Ok(name.to_owned());
    }
    Err(format!("must be a name of 1 to {LONGEST_NAME} characters, without control characters"))
}

/// A channel's own table, and the table that all channels share.
pub(crate) struct Levels<'r> {
    pub(crate) own: Section<'r>,
    pub(crate) shared: Section<'r>,
}

impl Levels<'_> {
    /// Returns `None` if neither level names an owner.
    pub(crate) fn read(&self) -> Reading<Verification> {
        let verifier = self.verifier();
        let unsigned = self.required("unsigned", |level, key| level.optional(key, word));
        let ordering = self.required("ordering", |level, key| level.optional(key, word));
        let proof_timeout = self.required("proof_timeout", |level, key| level.optional(key, positive_duration));
        let Some(verifier) = verifier?.map(Arc::new) else { return Ok(None) };
        let (unsigned, ordering, proof_timeout) = (unsigned?, ordering?, proof_timeout?);
        Ok(Some(Verification { verifier, expect: Arc::default(), unsigned, ordering, proof_timeout }))
    }

    /// The verifier alone. Returns `None` if neither level names an owner.
    pub(crate) fn verifier(&self) -> Reading<Verifier> {
        let owner = self.inherited(&["org_id", "workflow_owner"], read_owner);
        let tenant_id = self.inherited(&["tenant_id"], |level| level.optional("tenant_id", |text| Ok(text.to_owned())));
        let signers = self.signer_set();
        let owner = match owner? {
            None => return Ok(None),
            Some(Owner::Workflow(address)) => address,
            Some(Owner::Organisation(id)) => workflow_owner(&id, &tenant_id?.unwrap_or_default()),
        };
        Ok(Some(Verifier::new(signers?, owner)))
    }

    fn signer_set(&self) -> Result<SignerSet, Reported> {
        const REQUIRED: &str = "min_required_signatures";
        let signers = self.required("valid_signers", read_signers);
        let required = self.required(REQUIRED, |level, key| level.optional(key, signatures));
        SignerSet::new(signers?, required?).map_err(|error| {
            let level = if self.own.is_set(REQUIRED) { &self.own } else { &self.shared };
            level.wrong(REQUIRED, format!("{error}; lower it, or list more in valid_signers"))
        })
    }

    /// Records that neither level names an owner.
    pub(crate) fn without_owner(&self) -> Reported {
        let other = self.shared.key.at("workflow_owner");
        let message = format!("is missing; set it, or {other}, or one of them in each channel's verification table");
        self.shared.wrong("org_id", message)
    }

    /// The channel's own value of one of these keys, or else the shared value. Mistakes of both are recorded.
    fn inherited<T>(&self, keys: &[&str], read: impl Fn(&Section<'_>) -> Reading<T>) -> Reading<T> {
        match (read(&self.shared), read(&self.own)) {
            (shared, Ok(None)) => {
                for key in keys {
                    self.own.note_inherited(key, &self.shared);
                }
                shared
            }
            (_, own) => own,
        }
    }

    fn required<T>(&self, key: &str, read: impl Fn(&Section<'_>, &str) -> Reading<T>) -> Result<T, Reported> {
        self.inherited(&[key], |level| read(level, key))?.ok_or_else(|| self.shared.missing(key))
    }
}

/// The organization in the shipped example files, which does not exist.
const EXAMPLE_ORG: &str = "org_2abcDEFghiJKLmno";

fn read_owner(table: &Section<'_>) -> Reading<Owner> {
    match table.either("org_id", "workflow_owner")? {
        None => Ok(None),
        Some("org_id") => table.optional("org_id", org_id),
        Some(key) => table.optional(key, |text| Ok(Owner::Workflow(address(text)?))),
    }
}

fn org_id(text: &str) -> Result<Owner, String> {
    if text.contains('…') || text.contains("...") || text == EXAMPLE_ORG {
        return Err("is the placeholder of an example; set your organization's id, as the service shows it".to_owned());
    }
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err(
            "must be the organization's id as the service shows it, such as \"org_…\", without spaces".to_owned()
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

fn read_signers(table: &Section<'_>, key: &str) -> Reading<Vec<Address>> {
    let Some(texts) = table.list(key)? else { return Ok(None) };
    let mut signers = Vec::with_capacity(texts.len());
    let mut outcome =
        if texts.is_empty() { Err(table.wrong(key, "is empty; list the network's signers")) } else { Ok(()) };
    for (number, text) in (1..).zip(&texts) {
        match address(text) {
            Ok(signer) if signers.contains(&signer) => {
                let message = format!("lists {signer} twice (number {number}); list each signer once");
                outcome = Err(table.wrong(key, message));
            }
            Ok(signer) => signers.push(signer),
            Err(message) => outcome = Err(table.wrong(key, format!("number {number} {message}"))),
        }
    }
    outcome.map(|()| Some(signers))
}
