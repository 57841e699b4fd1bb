//! The accepted signers, the owner of the events, and the handling of events without a proof.
//!
//! `[verification]` applies to every channel. The table of the channel's account overrides it key by key, and
//! `[channels.NAME.verification]` overrides both. One of two keys sets the owner: `org_id` or `workflow_owner`. An owner in one of
//! these tables replaces an inherited owner, even if the other key sets the inherited owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::account;
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

/// The keys that belong to one network of signers. `don` sets all of them together.
const NETWORK: [&str; 3] = ["tenant_id", REQUIRED, SIGNERS];

const REQUIRED: &str = "min_required_signatures";

const SIGNERS: &str = "valid_signers";

const DON: &str = "don";

/// The tables that decide how the events of a channel are verified. In each list, a table takes precedence over the tables after
/// it, and the last one is `[verification]`.
pub(crate) struct Levels<'r> {
    /// The tables that name the owner and the network: the channel's own table, the channel's account, `[verification]`.
    trust: Vec<Section<'r>>,
    /// The tables with the other keys: the channel's own table, `[verification]`.
    handling: Vec<Section<'r>>,
    /// The table in which a missing owner is reported.
    of_owner: Section<'r>,
}

impl<'r> Levels<'r> {
    /// The levels of a channel.
    pub(crate) fn of_channel(root: &Section<'r>, channel: &Section<'r>) -> Self {
        let (own, shared) = (channel.section("verification"), root.section("verification"));
        let account = account::of_channel(root, channel).unwrap_or_default();
        let account = account.name().map(|name| root.section("accounts").section(name));
        let of_owner = account.clone().unwrap_or_else(|| shared.clone());
        let trust = [Some(own.clone()), account, Some(shared.clone())].into_iter().flatten().collect();
        Self { trust, handling: vec![own, shared], of_owner }
    }

    /// The levels of an account, for channels that have no table of their own.
    pub(crate) fn of_account(root: &Section<'r>, account: &Section<'r>) -> Self {
        let shared = root.section("verification");
        Self { trust: vec![account.clone(), shared.clone()], handling: vec![shared], of_owner: account.clone() }
    }

    /// The shared table alone.
    pub(crate) fn shared(root: &Section<'r>) -> Self {
        let shared = root.section("verification");
        Self { trust: vec![shared.clone()], handling: vec![shared.clone()], of_owner: shared }
    }

    /// Returns `None` if no level names an owner.
    pub(crate) fn read(&self, expect: Expect) -> Reading<Verification> {
        let verifier = self.verifier();
        let unsigned = required(&self.handling, "unsigned", word);
        let ordering = required(&self.handling, "ordering", word);
        let proof_timeout = required(&self.handling, "proof_timeout", positive_duration);
        let Some(verifier) = verifier?.map(Arc::new) else { return Ok(None) };
        let (unsigned, ordering, proof_timeout) = (unsigned?, ordering?, proof_timeout?);
        Ok(Some(Verification { verifier, expect: Arc::new(expect), unsigned, ordering, proof_timeout }))
    }

    /// The verifier alone. Returns `None` if no level names an owner.
    pub(crate) fn verifier(&self) -> Reading<Verifier> {
        let (networks, is_whole) = self.networks();
        let tenant_id =
            inherited(&networks, &["tenant_id"], |level| level.optional("tenant_id", |text| Ok(text.to_owned())));
        let tenant = tenant_id.clone().ok().flatten().unwrap_or_default();
        let owner = inherited(&self.trust, &["org_id", "workflow_owner"], |level| read_owner(level, &tenant));
        is_whole?;
        let signers = signer_set(&networks);
        let Some(owner) = owner? else { return Ok(None) };
        tenant_id?;
        Ok(Some(Verifier::new(signers?, owner)))
    }

    /// Returns the tables with the keys of [`NETWORK`]. If a level has a table `don`, this table takes the place of the level. A
    /// `don` is used as a whole: an error is recorded if a key is missing in it, or if the same level or a level before it also
    /// sets a key alone.
    fn networks(&self) -> (Vec<Section<'r>>, Result<(), Reported>) {
        let (mut networks, mut is_whole): (Vec<Section<'r>>, _) = (Vec::new(), Ok(()));
        // The keys that are set alone, in the tables that take precedence over a `don`.
        let mut single = Vec::new();
        for level in &self.trust {
            if !level.contains(DON) {
                single.extend(NETWORK.iter().filter(|key| level.is_written(key)).map(|key| (level, *key)));
                networks.push(level.clone());
                continue;
            }
            let don = level.section(DON);
            for key in NETWORK {
                if level.is_written(key) {
                    let message = format!("is set together with {}; keep one of the two", don.key);
                    is_whole = Err(level.wrong(key, message));
                }
                level.note_use(key, KeyUse::Replaced);
                if level.is_table(DON) && !don.is_set(key) {
                    is_whole = Err(don.wrong(key, "is missing; these three keys belong together, so set all of them"));
                }
            }
            for (above, key) in single.drain(..) {
                let message = format!(
                    "would replace a part of {}, whose keys belong together; set {} instead",
                    don.key,
                    above.key.at(DON)
                );
                is_whole = Err(above.wrong(key, message));
                above.note_use(key, KeyUse::Replaced);
            }
            networks.push(don);
        }
        (networks, is_whole)
    }

    /// Records that no level names an owner.
    pub(crate) fn without_owner(&self) -> Reported {
        let other = self.of_owner.key.at("workflow_owner");
        let message = format!("is missing; set it, or {other}, or one of them in each channel's verification table");
        self.of_owner.wrong("org_id", message)
    }
}

/// The value of one of these keys in the first table that sets one of them. Mistakes in all tables are recorded.
fn inherited<T>(tables: &[Section<'_>], keys: &[&str], read: impl Fn(&Section<'_>) -> Reading<T>) -> Reading<T> {
    // From the table that all channels share to the channel's own table.
    let mut found: (Option<&Section<'_>>, Reading<T>) = (None, Ok(None));
    for table in tables.iter().rev() {
        match (read(table), found.0) {
            (Ok(None), Some(source)) => {
                for key in keys {
                    table.note_use(key, KeyUse::Inherits(source.key.at(key)));
                }
            }
            (value, _) => found = (Some(table), value),
        }
    }
    found.1
}

fn required<T>(tables: &[Section<'_>], key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Reported> {
    let value = inherited(tables, &[key], |table| table.optional(key, &parse))?;
    value.ok_or_else(|| tables[tables.len() - 1].missing(key))
}

fn signer_set(tables: &[Section<'_>]) -> Result<SignerSet, Reported> {
    let signers = inherited(tables, &[SIGNERS], read_signers);
    let required = required(tables, REQUIRED, signatures);
    let shared = &tables[tables.len() - 1];
    let signers = signers?.ok_or_else(|| shared.missing(SIGNERS))?;
    SignerSet::new(signers, required?).map_err(|error| {
        let table = tables.iter().find(|table| table.is_set(REQUIRED)).unwrap_or(shared);
        table.wrong(REQUIRED, format!("{error}; lower this number, or list more signers in valid_signers"))
    })
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
    table.items(SIGNERS, "is empty; list the network's signers", |number, text| {
        let signer = address(text).map_err(|message| format!("item {number} of the list {message}"))?;
        if known.insert(signer) {
            return Ok(signer);
        }
        Err(format!("lists {signer} twice (again as item {number} of the list); list each signer once"))
    })
}
