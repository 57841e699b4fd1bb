//! Secrets: given by value or by file, and never shown.
//!
//! # Invariants
//!
//! * **Silent.** `Debug`, `Display` and `Serialize` of a [`Secret`] say nothing about it; only [`Secret::expose`] does.

use std::fmt;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::file::read_secret;
use super::keys::{Key, Keys, Reading};

const SHOWN: &str = "[secret]";

/// A text that no log, error or output may contain.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes a text into silence.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SHOWN)
    }
}

/// Reads `name` or `name_file` of a section. `check` says what is wrong with the text without quoting it.
pub(crate) fn read(
    keys: &mut Keys,
    section: &Key,
    name: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> Reading<Secret> {
    read_as(keys, section, name, |text| check(text).map(|()| Secret::new(text)).map_err(str::to_owned))
}

/// As [`read`], for a secret that becomes something else. `parse` says what is wrong with the text without quoting it.
pub(crate) fn read_as<T>(
    keys: &mut Keys,
    section: &Key,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Reading<T> {
    let (value, file) = (section.at(name), section.at(&format!("{name}_file")));
    let (key, text) = match keys.either(&value, &file)? {
        None => return Ok(None),
        Some(key) if *key == value => (key, keys.quoted(key)?),
        Some(key) => (key, keys.file(key, from_file)?),
    };
    let Some(text) = text else { return Ok(None) };
    parse(&text).map(Some).map_err(|message| keys.wrong(key, message))
}

/// The text in a file, without the line break at its end.
pub(crate) fn from_file(path: &str) -> Result<String, String> {
    // Who puts the secret itself where the path belongs must not find it in a log: only what is clearly a path is shown.
    let shown = if path.starts_with(['/', '.']) { format!("the file {path:?}") } else { "the file".to_owned() };
    let text =
        read_secret(Path::new(path)).map_err(|error| format!("{shown} {error}; create it, or correct the path"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(format!("{shown} is empty; put the secret into it"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_says_nothing() {
        let secret = Secret::new("hunter2");
        let json = serde_json::to_string(&secret).expect("a text is JSON");
        for shown in [format!("{secret:?} {secret:#?}"), format!("{secret}"), json] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(secret.expose(), "hunter2");
    }
}
