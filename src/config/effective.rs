//! Lists the values in effect with their origins.
//!
//! # Invariants
//!
//! * **No secret.** A value is shown only if it was read as a value that may be shown. All other values are hidden.
//! * **No list of its own.** The list contains the keys that were read. A default is recorded where the code applies it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use figment::value::Value;
use serde::Serialize;
use url::Url;

use super::key::Key;
use super::reading::{Presentation, Reader};
use super::sources::environment::ENVIRONMENT;
use super::sources::text::{FILE, Lines, Text};

/// A value in effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The key as it is written in a file: `channels.settlements.id`.
    pub key: String,
    /// The value as it was written; `None` if it is hidden.
    pub value: Option<serde_json::Value>,
    /// Whether the value is, or may be, a secret.
    pub hidden: bool,
    /// The origin of the value.
    #[serde(flatten)]
    pub origin: Origin,
    /// The key whose value a channel inherits, because it has no value of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherits: Option<String>,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", rename_all = "lowercase")]
pub enum Origin {
    /// The value is channeld's default.
    Default,
    /// The operator's file.
    File {
        /// Its path.
        file: PathBuf,
        /// The line, from 1.
        line: Option<usize>,
    },
    /// An environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
}

/// Returns each value in effect, in the order of the keys.
pub(super) fn settings(reader: &Reader, text: &Text) -> Vec<Setting> {
    let (seen, lines) = (reader.seen.borrow(), Lines::of(text));
    let mut settings = BTreeMap::new();
    each(&Key::default(), &reader.values, &mut |key, value| {
        if !seen.replaced.contains(&key) {
            let value = match seen.shown.get(&key) {
                Some(Presentation::AsItIs) => json(value),
                Some(Presentation::As(text)) => Some(text.as_str().into()),
                Some(Presentation::Hidden) | None => None,
            };
            let origin = origin(reader, lines.as_ref(), &key);
            settings.insert(key.clone(), Setting::new(&key, value, origin));
        }
    });
    for (key, value) in &seen.defaults {
        settings.entry(key.clone()).or_insert_with(|| Setting::new(key, json(value), Origin::Default));
    }
    for (key, other) in seen.inherited.iter().filter(|(key, other)| key != other) {
        if let Some(setting) = settings.get(other).cloned() {
            let inherits = Some(other.to_string());
            settings.insert(key.clone(), Setting { key: key.to_string(), inherits, ..setting });
        }
    }
    settings.into_values().collect()
}

impl Setting {
    fn new(key: &Key, value: Option<serde_json::Value>, origin: Origin) -> Self {
        Self { key: key.to_string(), hidden: value.is_none(), value, origin, inherits: None }
    }
}

/// Converts a value to JSON. A URL is shown without its query, which may contain a token.
fn json(value: &Value) -> Option<serde_json::Value> {
    let has_query = |text: &&str| Url::parse(text.trim()).is_ok_and(|url| url.query().is_some());
    match value.as_str().filter(has_query).and_then(|text| text.split_once('?')) {
        Some((address, _)) => Some(format!("{address}?…").into()),
        None => serde_json::to_value(value).ok(),
    }
}

/// Calls `found` for every value, but not for the tables that contain the values.
fn each(above: &Key, value: &Value, found: &mut impl FnMut(Key, &Value)) {
    match value.as_dict() {
        Some(table) => table.iter().for_each(|(name, value)| each(&above.at(name), value, found)),
        None => found(above.clone(), value),
    }
}

fn origin(reader: &Reader, lines: Option<&Lines<'_>>, key: &Key) -> Origin {
    let origin = reader.origin(key).unwrap_or_default();
    if let Some(file) = origin.strip_prefix(FILE) {
        let line = lines.and_then(|lines| lines.line(key.0.iter().map(String::as_str)));
        return Origin::File { file: file.into(), line };
    }
    match origin.strip_prefix(ENVIRONMENT) {
        Some(variable) => Origin::Environment { variable: variable.to_owned() },
        None => Origin::Default,
    }
}
