//! The values of the service that this version does not know.
//!
//! The service can add statuses, types, proofs and members at any time. Events with such values are read like all others.
//! The values are collected, so that an operator learns that the service has changed.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::json::Object;

/// The maximum length of an unknown value, in characters. Longer values are cut.
pub const MAX_UNKNOWN_LENGTH: usize = 100;

/// The maximum number of unknown values that are collected from one event.
const MAX_UNKNOWN: usize = 50;

/// The part of the service's data in which an unknown value occurs. Metrics use the name in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UnknownPart {
    /// `payload.status` of a known type.
    Status,
    /// `headers.type`.
    Type,
    /// `type` of an error.
    ErrorType,
    /// `alg` of a proof, or the name of a member of a proof.
    Proof,
    /// The name of a member of the payload of a known type.
    PayloadMember,
    /// The name of a member of the record or of its `headers`.
    EnvelopeMember,
}

/// A value that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownValue {
    /// The part in which the value occurs.
    pub what: UnknownPart,
    /// The value. It has at most [`MAX_UNKNOWN_LENGTH`] characters, and its control characters are escaped.
    pub value: Box<str>,
}

impl UnknownValue {
    /// Bounds and escapes a text of the service.
    pub fn new(what: UnknownPart, text: &str) -> Self {
        let (mut value, mut length) = (String::new(), 0);
        for c in text.chars() {
            let shown = if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            length += shown.chars().count();
            if length > MAX_UNKNOWN_LENGTH {
                break;
            }
            value.push_str(&shown);
        }
        Self { what, value: value.into() }
    }
}

/// Collects the unknown values of one event. If all values are known, this allocates nothing.
#[derive(Debug, Default)]
pub(super) struct UnknownValues(pub(super) Vec<UnknownValue>);

impl UnknownValues {
    pub(super) fn add(&mut self, what: UnknownPart, text: &str) {
        if self.0.len() < MAX_UNKNOWN {
            self.0.push(UnknownValue::new(what, text));
        }
    }

    /// Adds the names of the members of an object that `is_known` does not accept.
    pub(super) fn add_members(&mut self, what: UnknownPart, object: &Object<'_>, is_known: impl Fn(&str) -> bool) {
        for (name, _) in object.members().filter(|(name, _)| !is_known(name)) {
            self.add(what, name);
        }
    }
}
