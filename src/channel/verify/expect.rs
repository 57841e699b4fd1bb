//! What a channel is about, as far as it is signed: `[channels.NAME.expect]`.
//!
//! The signatures bind an event's content and the workflow that it comes from, and not the channel that it is shown in. So
//! what is signed is compared with what the operator expects of the channel, and with the channel's own id where it names one.
//!
//! # Invariants
//!
//! * **Values, not texts.** Hex is compared in any case and with or without `0x`, a number without the zeros before it.
//! * **What names nothing is not expected.** Where a list is set, an event whose signed content lacks that field is rejected
//!   too: the list would be of no use otherwise.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use strum::{IntoStaticStr, VariantArray};
use uuid::Uuid;

use proof::event::ChannelId;
use proof::verify::{Address, Hash, Proof, Verified};

#[cfg(test)]
mod tests;

/// The service's own name in what is signed.
const SERVICE: &str = "_crec";

/// Expected values that a message shows, and the characters of the value that was found.
const SHOWN: usize = 4;
const SHOWN_CHARACTERS: usize = 100;

/// Something that a verified event names and the signatures cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Named {
    /// The workflow that made the report: one a watcher.
    WorkflowId,
    /// The chain, by its selector.
    ChainSelector,
    /// The contract or wallet that emitted the event; of a query's result the contract that was asked.
    Address,
    /// The watcher's service.
    Service,
    /// The event's name.
    Name,
}

/// What a channel's verified events may name. A field that is absent expects nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect(BTreeMap<Named, Vec<String>>);

/// Why a verified event is not of the channel that it is shown in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOfChannel {
    /// A query's result names another channel.
    #[error("the signed result is of channel {}, and not of {expected}", shown(found))]
    OtherChannel {
        /// As the result has it.
        found: String,
        /// The channel that it is shown in.
        expected: ChannelId,
    },
    /// It names something that is on none of the channel's lists.
    #[error("what is signed names {}, and `expect.{}` has {}", named(*.what, .found.as_deref()), <&str>::from(*.what), listed(.expected))]
    Unexpected {
        /// Which list it is not on.
        what: Named,
        /// What the event names; `None` where it names none.
        found: Option<String>,
        /// The list.
        expected: Vec<String>,
    },
}

/// What a channel says to a proof that another one has shown too. The higher one has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// It is not what the channel expects.
    Refused,
    /// The channel expects nothing.
    Open,
    /// It is what the channel expects.
    Expected,
}

impl Named {
    /// The form in which values are compared.
    ///
    /// # Errors
    /// What it should be, where no event can have that value.
    pub fn canonical(self, text: &str) -> Result<String, &'static str> {
        match self {
            Self::WorkflowId => {
                let id = text.parse::<Hash>().map_err(|_| "is not 64 hexadecimal digits, with or without 0x")?;
                Ok(id.to_string())
            }
            Self::Address => {
                let address =
                    text.parse::<Address>().map_err(|_| "is not 40 hexadecimal digits, with or without 0x")?;
                Ok(address.to_string())
            }
            Self::ChainSelector if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err("is not a decimal number")
            }
            Self::ChainSelector => Ok(text.trim_start_matches('0').to_owned()),
            Self::Service | Self::Name if text.is_empty() => Err("is empty"),
            Self::Service | Self::Name => Ok(text.to_owned()),
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Self::WorkflowId => "unexpected-workflow",
            Self::ChainSelector => "unexpected-chain",
            Self::Address => "unexpected-address",
            Self::Service => "unexpected-service",
            Self::Name => "unexpected-name",
        }
    }
}

impl Expect {
    /// Of lists of values in their canonical form.
    pub fn of(lists: impl IntoIterator<Item = (Named, Vec<String>)>) -> Self {
        Self(lists.into_iter().collect())
    }

    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a list of that field.
    pub(crate) fn has(&self, what: Named) -> bool {
        self.0.contains_key(&what)
    }

    /// The lists that are set.
    pub fn lists(&self) -> impl Iterator<Item = (Named, &[String])> {
        self.0.iter().map(|(what, values)| (*what, &**values))
    }

    /// Checks that a verified event is of this channel. `signed` is the JSON inside its signed text, where it is JSON.
    ///
    /// # Errors
    /// [`NotOfChannel`].
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

    /// As [`check`](Self::check), of an event whose signed text has not been decoded.
    ///
    /// # Errors
    /// [`NotOfChannel`].
    pub fn check_event(&self, channel: ChannelId, verified: &Verified) -> Result<(), NotOfChannel> {
        let signed = decoded(verified);
        self.check(channel, verified.proof(), signed.as_ref().map(|signed| signed.get().as_bytes()))
    }

    /// What the channel says to a proof that another one has shown too.
    pub(crate) fn claim(&self, channel: ChannelId, proof: &Proof, signed: Option<&[u8]>) -> Claim {
        match self.check(channel, proof, signed) {
            Err(_) => Claim::Refused,
            Ok(()) if self.is_empty() => Claim::Open,
            Ok(()) => Claim::Expected,
        }
    }
}

impl NotOfChannel {
    /// Every [`reason`](Self::reason) there is.
    pub(crate) fn reasons() -> impl Iterator<Item = &'static str> {
        Named::VARIANTS.iter().map(|what| what.reason()).chain([OTHER_CHANNEL])
    }

    /// A short constant name, beside those of [`Reason`](proof::verify::Reason).
    pub fn reason(&self) -> &'static str {
        match self {
            Self::OtherChannel { .. } => OTHER_CHANNEL,
            Self::Unexpected { what, .. } => what.reason(),
        }
    }
}

const OTHER_CHANNEL: &str = "other-channel";

/// What a verified event names, read from what is signed as it is asked for.
pub struct Names<'a> {
    proof: &'a Proof,
    signed: Option<&'a [u8]>,
    content: OnceCell<Content<'a>>,
}

/// Borrowed as it stands: most of it is never read. Of a member that stands there twice nothing is read.
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
    /// Of an event with that proof and that signed JSON.
    pub fn of(proof: &'a Proof, signed: Option<&'a [u8]>) -> Self {
        Self { proof, signed, content: OnceCell::new() }
    }

    /// Its canonical value of a field; one that cannot be read as it stands.
    pub fn get(&self, what: Named) -> Option<String> {
        let text = match what {
            Named::WorkflowId => return Some(self.proof.workflow_id.to_string()),
            Named::ChainSelector => text(self.content().chain_selector?),
            Named::Address => text(self.address()?),
            Named::Service => text(self.content().service?),
            Named::Name => text(self.content().name?),
        };
        Some(what.canonical(&text).unwrap_or_else(|_| text.into_owned()))
    }

    fn address(&self) -> Option<&'a RawValue> {
        if self.content().chain_event.is_some() {
            return inner(self.content().chain_event)?.address;
        }
        inner(inner(self.result())?.target)?.contract_address
    }

    /// The channel that a query's result is of.
    fn channel(&self) -> Option<Cow<'a, str>> {
        // Found much faster than the content is read, and most events have none.
        let has_one = std::str::from_utf8(self.signed?).is_ok_and(|signed| signed.contains("\"channel_id\""));
        if has_one { inner(self.result())?.channel_id.map(text) } else { None }
    }

    fn content(&self) -> &Content<'a> {
        let read = || self.signed.and_then(|signed| serde_json::from_slice(signed).ok());
        self.content.get_or_init(|| read().unwrap_or_default())
    }

    /// What the service itself has signed, as a query's result.
    fn result(&self) -> Option<&'a RawValue> {
        let Content { data, service, .. } = self.content();
        data.filter(|_| service.is_some_and(|service| text(service) == SERVICE))
    }
}

/// The JSON inside the signed text.
pub fn decoded(verified: &Verified) -> Option<Box<RawValue>> {
    record::decode(verified.event().payload.signed.as_deref()?)
}

fn inner(object: Option<&RawValue>) -> Option<Inner<'_>> {
    serde_json::from_str(object?.get()).ok()
}

/// A text or, as a chain selector may be written, anything else as it stands.
fn text(value: &RawValue) -> Cow<'_, str> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str(value.get()).map_or(Cow::Borrowed(value.get()), |Text(text)| text)
}

fn named(what: Named, found: Option<&str>) -> String {
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

impl fmt::Debug for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Named::VARIANTS.iter().map(|what| (<&str>::from(what), self.get(*what)))).finish()
    }
}
