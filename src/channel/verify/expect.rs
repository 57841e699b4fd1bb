//! Checks that the signed content of an event belongs to the channel that shows the event: `[channels.NAME.expect]`.
//!
//! The signatures cover an event's content and its workflow, but not the channel that shows the event. The signed content is
//! therefore compared with the operator's `expect` lists. If the content names a channel, this name is compared with the
//! channel's id.
//!
//! # Invariants
//!
//! * **Values, not texts.** The comparison of hexadecimal values ignores upper and lower case and the prefix `0x`. The
//!   comparison of numbers ignores leading zeros.
//! * **A missing field is rejected.** If a list is set for a field, an event without this field in its signed content is
//!   rejected. Otherwise an event could bypass the list by omitting the field.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use strum::{IntoStaticStr, VariantArray};
use uuid::Uuid;

use proof::event::ChannelId;
use proof::verify::{Address, Hash, Proof, Verified};

#[cfg(test)]
mod tests;

/// The name by which signed content refers to CRE Connect itself, as the value of `service`.
const SERVICE: &str = "_crec";

/// The maximum number of expected values in an error message.
const SHOWN: usize = 4;

/// The maximum number of characters of an event's value in an error message.
const SHOWN_CHARACTERS: usize = 100;

/// A field that the signatures of a verified event cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum SignedField {
    /// The workflow that created the signed report. Each watcher has one workflow.
    WorkflowId,
    /// The chain, by its selector.
    ChainSelector,
    /// The contract or wallet that emitted the event. For a query's result, the contract that was queried.
    Address,
    /// The watcher's service.
    Service,
    /// The event's name.
    Name,
}

/// The values that the signed fields of a channel's events may have. A field without a list may have every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect(BTreeMap<SignedField, Vec<String>>);

/// The reason why a verified event does not belong to the channel that shows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOfChannel {
    /// The event is the result of a query, and it names another channel.
    #[error("the signed result is of channel {}, and not of {expected}", shown(found))]
    OtherChannel {
        /// The channel id in the result.
        found: String,
        /// The channel that shows the event.
        expected: ChannelId,
    },
    /// The value of a signed field is not on the channel's list, or the field is missing.
    #[error("the signed data names {}, but `expect.{}` has {}", named(*.what, .found.as_deref()), <&str>::from(*.what), listed(.expected))]
    Unexpected {
        /// The field that the list belongs to.
        what: SignedField,
        /// The event's value, or `None` if the event lacks the field.
        found: Option<String>,
        /// The values on the list.
        expected: Vec<String>,
    },
}

/// How strongly a channel claims a proof that another channel has shown too. The variants are in ascending order, and the
/// higher claim wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProofExpectation {
    /// The channel's lists exclude the event, or the event names another channel.
    Refused,
    /// The channel has no lists, so it accepts every event.
    Open,
    /// The channel's lists include the event.
    Expected,
}

impl SignedField {
    /// Returns a value in the canonical form. Values are compared in this form.
    ///
    /// # Errors
    /// If no event can have this value. The error describes the problem.
    pub fn canonical(self, text: &str) -> Result<String, &'static str> {
        match self {
            Self::WorkflowId => match text.parse::<Hash>() {
                Ok(id) => Ok(id.to_string()),
                Err(_) => Err("is not 64 hexadecimal digits, with or without 0x"),
            },
            Self::Address => match text.parse::<Address>() {
                Ok(address) => Ok(address.to_string()),
                Err(_) => Err("is not 40 hexadecimal digits, with or without 0x"),
            },
            Self::ChainSelector if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err("is not a decimal number")
            }
            Self::ChainSelector => Ok(text.trim_start_matches('0').to_owned()),
            Self::Service | Self::Name if text.is_empty() => Err("is empty"),
            Self::Service | Self::Name => Ok(text.to_owned()),
        }
    }
}

impl Expect {
    /// Creates the lists. The values must be in canonical form.
    pub fn of(lists: impl IntoIterator<Item = (SignedField, Vec<String>)>) -> Self {
        Self(lists.into_iter().collect())
    }

    /// Returns whether no list is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, what: SignedField) -> bool {
        self.0.contains_key(&what)
    }

    /// Returns the lists that are set.
    pub fn lists(&self) -> impl Iterator<Item = (SignedField, &[String])> {
        self.0.iter().map(|(what, values)| (*what, &**values))
    }

    /// Checks that a verified event belongs to this channel. `signed` is the JSON that the event's signed text contains, or
    /// `None` if the text contains none.
    ///
    /// # Errors
    /// [`NotOfChannel`] if the event belongs to another channel or has an unexpected value.
    pub fn check(&self, channel: ChannelId, proof: &Proof, signed: Option<&[u8]>) -> Result<(), NotOfChannel> {
        let names = Names::of(proof, signed);
        if let Some(found) = names.channel()
            && found.parse::<Uuid>().ok() != Some(channel.0)
        {
            return Err(NotOfChannel::OtherChannel { found: found.into_owned(), expected: channel });
        }
        for (what, expected) in &self.0 {
            let found = names.get(*what);
            if !found.as_ref().is_some_and(|found| expected.contains(found)) {
                return Err(NotOfChannel::Unexpected { what: *what, found, expected: expected.clone() });
            }
        }
        Ok(())
    }

    /// Like [`check`](Self::check), but decodes the signed text of the event first.
    ///
    /// # Errors
    /// [`NotOfChannel`] if the event belongs to another channel or has an unexpected value.
    pub fn check_event(&self, channel: ChannelId, verified: &Verified) -> Result<(), NotOfChannel> {
        let signed = decoded(verified);
        self.check(channel, verified.proof(), signed.as_ref().map(|signed| signed.get().as_bytes()))
    }

    pub(crate) fn expectation(&self, channel: ChannelId, proof: &Proof, signed: Option<&[u8]>) -> ProofExpectation {
        match self.check(channel, proof, signed) {
            Err(_) => ProofExpectation::Refused,
            Ok(()) if self.is_empty() => ProofExpectation::Open,
            Ok(()) => ProofExpectation::Expected,
        }
    }
}

/// The fields of a verified event, read from its signed content on demand.
pub struct Names<'a> {
    proof: &'a Proof,
    signed: Option<&'a [u8]>,
    content: OnceCell<Content<'a>>,
}

/// The members of the signed JSON, borrowed as raw JSON, because most of them are never read. If one of these members occurs
/// twice, none of them is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Content<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    service: Option<&'a RawValue>,
    #[serde(borrow)]
    chain_selector: Option<&'a RawValue>,
    #[serde(borrow)]
    chain_event: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Inner<'a> {
    #[serde(borrow)]
    address: Option<&'a RawValue>,
    #[serde(borrow)]
    contract_address: Option<&'a RawValue>,
    #[serde(borrow)]
    channel_id: Option<&'a RawValue>,
    #[serde(borrow)]
    target: Option<&'a RawValue>,
}

impl<'a> Names<'a> {
    /// Creates a reader for the fields of an event with this proof and this signed JSON.
    pub fn of(proof: &'a Proof, signed: Option<&'a [u8]>) -> Self {
        Self { proof, signed, content: OnceCell::new() }
    }

    /// Returns the value of a field in its canonical form. A value without a canonical form is returned unchanged.
    pub fn get(&self, what: SignedField) -> Option<String> {
        let text = match what {
            SignedField::WorkflowId => return Some(self.proof.workflow_id.to_string()),
            SignedField::ChainSelector => text(self.content().chain_selector?),
            SignedField::Address => text(self.address()?),
            SignedField::Service => text(self.content().service?),
            SignedField::Name => text(self.content().name?),
        };
        Some(what.canonical(&text).unwrap_or_else(|_| text.into_owned()))
    }

    fn address(&self) -> Option<&'a RawValue> {
        if self.content().chain_event.is_some() {
            return inner(self.content().chain_event)?.address;
        }
        inner(inner(self.result())?.target)?.contract_address
    }

    fn channel(&self) -> Option<Cow<'a, str>> {
        // A text search is much faster than parsing the content, and most events have no channel id.
        let has_one = std::str::from_utf8(self.signed?).is_ok_and(|signed| signed.contains("\"channel_id\""));
        if has_one { inner(self.result())?.channel_id.map(text) } else { None }
    }

    fn content(&self) -> &Content<'a> {
        let read = || self.signed.and_then(|signed| serde_json::from_slice(signed).ok());
        self.content.get_or_init(|| read().unwrap_or_default())
    }

    /// Returns `data` if the content is from CRE Connect itself (see [`SERVICE`]). This data is the result of a query.
    fn result(&self) -> Option<&'a RawValue> {
        let Content { data, service, .. } = self.content();
        data.filter(|_| service.is_some_and(|service| text(service) == SERVICE))
    }
}

/// Returns the JSON that the signed text of an event contains.
pub fn decoded(verified: &Verified) -> Option<Box<RawValue>> {
    record::decode(verified.event().payload.signed.as_deref()?)
}

fn inner(object: Option<&RawValue>) -> Option<Inner<'_>> {
    serde_json::from_str(object?.get()).ok()
}

/// Returns the content of a JSON string. Returns any other JSON value as it is written: a chain selector can be a string or a
/// number.
fn text(value: &RawValue) -> Cow<'_, str> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(value.get()).map_or(Cow::Borrowed(value.get()), |Text(text)| text)
}

fn named(what: SignedField, found: Option<&str>) -> String {
    let what = <&str>::from(what);
    found.map_or_else(|| format!("no {what}"), |found| format!("the {what} {}", shown(found)))
}

fn shown(found: &str) -> String {
    found.chars().take(SHOWN_CHARACTERS).collect()
}

fn listed(values: &[String]) -> String {
    let more = values.len().saturating_sub(SHOWN);
    let first = values[..values.len() - more].join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}
