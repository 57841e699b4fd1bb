//! JSON objects read so that nobody else can read them differently.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

/// Deeper nesting than this is refused, as the reference refuses it. It is also a bound on what a sink's consumer has
/// to cope with.
const MAX_DEPTH: usize = 10_000;

/// Why a record is not a well-formed event. Says where, never what stood there: bodies are not logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not a JSON object at all, or nested too deeply.
    #[error("the record is not a JSON object")]
    NotAnObject,
    /// A field that every event has is missing.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field that this version knows has another shape.
    #[error("`{0}` has the wrong shape")]
    Shape(&'static str),
    /// A field stands there twice, or in another spelling of upper and lower case.
    #[error("`{0}` is ambiguous: it stands there twice or in another case")]
    Ambiguous(&'static str),
}

/// An object's members in their order, each value still as text.
#[derive(Debug)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Reads a text as one object.
    pub(crate) fn read(json: &'a [u8]) -> Result<Self, Malformed> {
        if nested_too_deeply(json) { Err(Malformed::NotAnObject) } else { Self::read_at_any_depth(json) }
    }

    /// As [`read`](Self::read), however deep the text nests. Its members are not read, so it costs no stack.
    pub(super) fn read_at_any_depth(json: &'a [u8]) -> Result<Self, Malformed> {
        serde_json::from_slice(json).map_err(|_| Malformed::NotAnObject)
    }

    /// The last member of that name, however many there are: what most readers take.
    pub(crate) fn last(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|&(_, value)| value)
    }

    /// The member of that name; `null` counts as absent, as it does in the reference.
    pub(crate) fn raw(&self, name: &'static str) -> Result<Option<&'a RawValue>, Malformed> {
        let mut same = self.0.iter().filter(|(key, _)| folds_to(key, name));
        match (same.next(), same.next()) {
            (None, _) => Ok(None),
            (Some((key, value)), None) if key == name => Ok(Some(*value).filter(|value| value.get() != "null")),
            _ => Err(Malformed::Ambiguous(name)),
        }
    }

    /// The member of that name as a `T`, or `None` where it is absent.
    pub(crate) fn get<T: Deserialize<'a>>(&self, name: &'static str) -> Result<Option<T>, Malformed> {
        let read = |value: &'a RawValue| serde_json::from_str(value.get()).map_err(|_| Malformed::Shape(name));
        self.raw(name)?.map(read).transpose()
    }

    /// The member of that name as a `T`.
    pub(crate) fn require<T: Deserialize<'a>>(&self, name: &'static str) -> Result<T, Malformed> {
        self.get(name)?.ok_or(Malformed::Missing(name))
    }

    /// All members by their names, those of one name in their order.
    pub(crate) fn sorted(&self) -> Vec<(&str, &'a RawValue)> {
        let mut members: Vec<_> = self.0.iter().map(|(name, value)| (name.as_ref(), *value)).collect();
        members.sort_by_key(|&(name, _)| name);
        members
    }

    /// Checks that a member, where it is present, is a `T`.
    pub(crate) fn check<T: DeserializeOwned>(&self, name: &'static str) -> Result<(), Malformed> {
        self.get::<T>(name).map(drop)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(8);
        while let Some((Key(key), value)) = map.next_entry()? {
            members.push((key, value));
        }
        Ok(Object(members))
    }
}

/// A member's name, borrowed where it has no escapes (serde's own `Cow` never borrows).
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E: de::Error>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(name)))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

/// Whether a reader that ignores case (the reference is one) takes `key` for `name`, which is lower-case ASCII.
///
/// Two characters outside ASCII fold into it: the long s and the Kelvin sign.
fn folds_to(key: &str, name: &str) -> bool {
    let fold = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(name.chars())
}

/// Whether the text nests deeper than [`MAX_DEPTH`]. Only a text longer than that can.
fn nested_too_deeply(json: &[u8]) -> bool {
    if json.len() <= MAX_DEPTH {
        return false;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_two_spellings_is_ambiguous_whichever_comes_last() {
        for json in [
            r#"{"proofs":1,"PROOFS":2}"#,
            r#"{"proofſ":2,"proofs":1}"#,
            r#"{"proofs":1,"proofs":1}"#,
            r#"{"Proofs":1}"#,
            r#"{"proofs":1,"PROO\u0046S":1}"#,
        ] {
            let object = Object::read(json.as_bytes()).expect("an object");
            assert_eq!(object.get::<u8>("proofs"), Err(Malformed::Ambiguous("proofs")), "{json}");
        }
    }

    #[test]
    fn null_is_absent_and_other_shapes_are_named() {
        let object = Object::read(br#"{"a":null,"b":"text"}"#).expect("an object");
        assert_eq!(object.require::<u8>("a"), Err(Malformed::Missing("a")));
        assert_eq!(object.get::<u8>("b"), Err(Malformed::Shape("b")));
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        let text = format!(r#"{{"a":"\"{}"}}"#, "[".repeat(2 * MAX_DEPTH));
        assert!(!nested_too_deeply(text.as_bytes()));
        assert!(nested_too_deeply("[".repeat(MAX_DEPTH + 1).as_bytes()));
    }
}
