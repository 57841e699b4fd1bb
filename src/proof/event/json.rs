//! JSON objects, read strictly so that no other reader can read them differently.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The deepest nesting that is accepted. The reference refuses nesting only at 10,000 levels. Many readers accept 128
/// levels, and a record, a CloudEvents event and a batch add levels around an event.
pub(super) const MAX_DEPTH: usize = 120;

/// Why a record is not a well-formed event. The message names the field but never its value, because bodies are not
/// logged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe the variants")]
pub enum Malformed {
    #[error("the record is not a JSON object")]
    NotAnObject,
    /// The record is nested too deeply for some readers.
    #[error("the record is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Some readers cannot read half of a surrogate pair.
    #[error("the record has one half of a surrogate pair (such as \\ud800), which is no character")]
    HalfSurrogate,
    #[error("`{0}` is missing")]
    Missing(&'static str),
    #[error("`{0}` has the wrong shape")]
    Shape(&'static str),
    #[error("`{0}` is ambiguous: it occurs twice, or in different letter cases")]
    Ambiguous(&'static str),
}

/// An object's members in order. Each value is still JSON text.
#[derive(Debug)]
pub struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Reads a JSON text as one object. Any nesting depth is accepted, because values are not parsed.
    ///
    /// # Errors
    /// [`Malformed::NotAnObject`].
    pub fn read(json: &'a [u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(json).map_err(|_| Malformed::NotAnObject)?;
        serde_json::from_str(text).map_err(|_| Malformed::NotAnObject)
    }

    /// Returns the member with this name. `null` counts as absent, as in the reference.
    ///
    /// # Errors
    /// [`Malformed::Ambiguous`] if the name occurs twice or in another case.
    pub fn raw(&self, name: &'static str) -> Result<Option<&'a RawValue>, Malformed> {
        let mut same = self.0.iter().filter(|(key, _)| folds_to(key, name));
        match (same.next(), same.next()) {
            (None, _) => Ok(None),
            (Some((key, value)), None) if key == name => Ok(Some(*value).filter(|value| value.get() != "null")),
            _ => Err(Malformed::Ambiguous(name)),
        }
    }

    /// Returns the member with this name as a `T`, or `None` if it is absent.
    ///
    /// # Errors
    /// The errors of [`raw`](Self::raw), and [`Malformed::Shape`] if the value is not a `T`.
    pub fn get<T: Deserialize<'a>>(&self, name: &'static str) -> Result<Option<T>, Malformed> {
        let read = |value: &'a RawValue| serde_json::from_str(value.get()).map_err(|_| Malformed::Shape(name));
        self.raw(name)?.map(read).transpose()
    }

    /// Returns the member with this name as a `T`.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get), and [`Malformed::Missing`] if the member is absent.
    pub fn require<T: Deserialize<'a>>(&self, name: &'static str) -> Result<T, Malformed> {
        self.get(name)?.ok_or(Malformed::Missing(name))
    }

    /// Returns the member with this name as a string.
    ///
    /// # Errors
    /// The errors of [`get`](Self::get).
    pub fn text(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Malformed> {
        Ok(self.get(name)?.map(|Text(text)| text))
    }

    /// Returns all members in order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
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
        while let Some((Text(key), value)) = map.next_entry()? {
            members.push((key, value));
        }
        Ok(Object(members))
    }
}

/// Returns the last member with each of these names, as most readers do. Returns `None` if the text is not an object.
pub(super) fn last<'a, const N: usize>(json: &'a str, names: [&str; N]) -> Option<[Option<&'a RawValue>; N]> {
    let Object(members) = serde_json::from_str(json).ok()?;
    let last = |name| members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value);
    Some(names.map(last))
}

/// A string that is borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Whether a case-insensitive reader, such as the reference, considers `key` equal to `name`. `name` is lower-case ASCII.
///
/// Two characters outside ASCII fold to ASCII letters: the long s and the Kelvin sign.
fn folds_to(key: &str, name: &str) -> bool {
    let fold = |c: char| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    // Both characters are longer in UTF-8 than the letters that they fold to.
    key.len() >= name.len() && key.chars().map(fold).eq(name.chars())
}

/// Checks that every reader, including Python, Node and jq, can read a record that contains this text.
pub(super) fn check(json: &[u8]) -> Result<(), Malformed> {
    if is_nested_too_deeply(json) {
        return Err(Malformed::TooDeep);
    }
    if has_half_surrogate(json) { Err(Malformed::HalfSurrogate) } else { Ok(()) }
}

/// Whether the text is nested deeper than the 120 levels that an event may have.
pub fn is_nested_too_deeply(json: &[u8]) -> bool {
    // Few texts have more than this many brackets in total, so most need no scan for depth. The compiler vectorizes the count
    // of a chunk, because it fits into a byte.
    let brackets = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(matches!(byte, b'{' | b'['))).sum::<u8>();
    if json.chunks(usize::from(u8::MAX)).map(|chunk| usize::from(brackets(chunk))).sum::<usize>() <= MAX_DEPTH {
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

/// Whether an escape encodes half of a surrogate pair without the other half. Some readers, such as jq, refuse such a text.
pub fn has_half_surrogate(json: &[u8]) -> bool {
    // Most events contain no backslash, and `contains` finds that out faster than `position`.
    let mut rest = if json.contains(&b'\\') { json } else { b"" };
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let unit = escaped_unit(&rest[at..]);
        let length = match unit {
            Some(0xD800..=0xDBFF) if !matches!(escaped_unit(&rest[at + 6..]), Some(0xDC00..=0xDFFF)) => return true,
            Some(0xD800..=0xDBFF) => 12,
            Some(0xDC00..=0xDFFF) => return true,
            Some(_) => 6,
            None => 2,
        };
        rest = rest.get(at + length..).unwrap_or_default();
    }
    false
}

/// Decodes the escape `\uXXXX` at the start of the text to its UTF-16 unit.
fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
