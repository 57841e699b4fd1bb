//! The accepted signers, the owner of the events, and the handling of events without a proof.
//!
//! `[verification]` applies to every channel. `[channels.NAME.verification]` overrides it key by key. One of two keys
//! sets the owner: `org_id` or `workflow_owner`. An owner in the channel's table replaces the shared owner, even if the
//! shared owner is set by the other key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::reading::values::{positive_duration, text_if, word};
use crate::config::reading::{KeyUse, Reading, Reported, Section};
use ::channel::{Expect, Verification};
use ::operator::SignerNames;
use proof::verify::{Address, SignerSet, Verifier, workflow_owner};

/// The largest number of characters in a signer's name.
const LONGEST_NAME: usize = 64;

/// Reads `[verification.signer_names]`: the displayed names of signers.
pub(crate) fn signer_names(root: &Section<'_>) -> Result<SignerNames, Reported> {
    let table = root.section("verification").section("signer_names");
    let mut names = BTreeMap::new();
    for key in table.names()? {
        let signer = address(&key).map_err(|message| table.wrong(&key, message));
        if let (Ok(signer), Ok(Some(name))) = (signer, table.quoted(&key, signer_name)) {
            // The addresses in the defaults are lower-case. If the operator writes the same address in upper case, it sorts
            // first and takes precedence.
            names.entry(signer).or_insert(name);
        }
    }
    Ok(names)
}

fn signer_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let legal = (1..=LONGEST_NAME).contains(&name.chars().count()) && !name.contains(char::is_control);
    text_if(legal, name, &format!("must be a name of 1 to {LONGEST_NAME} characters, without control characters"))
}

/// A channel's own table, and the table that all channels share.
pub(crate) struct Levels<'r> {
    own: Section<'r>,
    shared: Section<'r>,
}

impl<'r> Levels<'r> {
    /// The levels of a channel's `table`. For the root, both are the shared table.
    pub(crate) fn of(root: &Section<'r>, table: &Section<'r>) -> Self {
        Self { own: table.section("verification"), shared: root.section("verification") }
    }

    /// Returns `None` if neither level names an owner.
    pub(crate) fn read(&self, expect: Expect) -> Reading<Verification> {
        let verifier = self.verifier();
        let unsigned = self.required("unsigned", word);
        let ordering = self.required("ordering", word);
        let proof_timeout = self.required("proof_timeout", positive_duration);
        let Some(verifier) = verifier?.map(Arc::new) else { return Ok(None) };
        let (unsigned, ordering, proof_timeout) = (unsigned?, ordering?, proof_timeout?);
        Ok(Some(Verification { verifier, expect: Arc::new(expect), unsigned, ordering, proof_timeout }))
    }

    /// The verifier alone. Returns `None` if neither level names an owner.
    pub(crate) fn verifier(&self) -> Reading<Verifier> {
        let tenant_id = self.inherited(&["tenant_id"], |level| level.optional("tenant_id", |text| Ok(text.to_owned())));
        let tenant = tenant_id.clone().ok().flatten().unwrap_or_default();
        let owner = self.inherited(&["org_id", "workflow_owner"], |level| read_owner(level, &tenant));
        let signers = self.signer_set();
        let Some(owner) = owner? else { return Ok(None) };
        tenant_id?;
        Ok(Some(Verifier::new(signers?, owner)))
    }

    fn signer_set(&self) -> Result<SignerSet, Reported> {
        const REQUIRED: &str = "min_required_signatures";
        let signers = self.inherited(&["valid_signers"], read_signers);
        let required = self.required(REQUIRED, signatures);
        let signers = signers?.ok_or_else(|| self.shared.missing("valid_signers"))?;
        SignerSet::new(signers, required?).map_err(|error| {
            let level = if self.own.is_set(REQUIRED) { &self.own } else { &self.shared };
            level.wrong(REQUIRED, format!("{error}; lower this number, or list more signers in valid_signers"))
        })
    }

    /// Records that neither level names an owner.
    pub(crate) fn without_owner(&self) -> Reported {
        let other = self.shared.key.at("workflow_owner");
        let message = format!("is missing; set it, or {other}, or one of them in each channel's verification table");
        self.shared.wrong("org_id", message)
    }

    /// The channel's own value of one of these keys or, if the channel sets none of them, the shared value. Mistakes at
    /// both levels are recorded.
    fn inherited<T>(&self, keys: &[&str], read: impl Fn(&Section<'_>) -> Reading<T>) -> Reading<T> {
        match (read(&self.shared), read(&self.own)) {
            (shared, Ok(None)) => {
                for key in keys {
                    self.own.note_use(key, KeyUse::Inherits(self.shared.key.at(key)));
                }
                shared
            }
            (_, own) => own,
        }
    }

    fn required<T>(&self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Reported> {
        self.inherited(&[key], |level| level.optional(key, &parse))?.ok_or_else(|| self.shared.missing(key))
    }
}

/// The organization in the shipped example files, which does not exist.
const EXAMPLE_ORG: &str = "org_2abcDEFghiJKLmno";

/// Reads the address of the owner, or computes it from the id of the organization.
fn read_owner(table: &Section<'_>, tenant_id: &str) -> Reading<Address> {
    match table.one_of(["org_id", "workflow_owner"])? {
        None => Ok(None),
        Some("org_id") => table.optional("org_id", |id| Ok(workflow_owner(org_id(id)?, tenant_id))),
        Some(key) => table.optional(key, address),
    }
}

fn org_id(text: &str) -> Result<&str, &'static str> {
    if text.contains('…') || text.contains("...") || text == EXAMPLE_ORG {
        return Err("is the placeholder of an example; set your organization's id, as the service shows it");
    }
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("must be the organization's id as the service shows it, such as \"org_…\", without spaces");
    }
    Ok(text)
}

fn address(text: &str) -> Result<Address, String> {
    text.trim().parse().map_err(|error| format!("is {error}"))
}

fn signatures(text: &str) -> Result<usize, String> {
    let number = text.trim().parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "must be a whole number greater than 0, and at most the number of signers".to_owned())
}

fn read_signers(table: &Section<'_>) -> Reading<Vec<Address>> {
    let mut known = BTreeSet::new();
    table.items("valid_signers", "is empty; list the network's signers", |number, text| {
        let signer = address(text).map_err(|message| format!("item {number} of the list {message}"))?;
        if known.insert(signer) {
            return Ok(signer);
        }
        Err(format!("lists {signer} twice (again as item {number} of the list); list each signer once"))
    })
}
