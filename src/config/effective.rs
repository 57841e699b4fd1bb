//! What is in effect: each value with the place where it was set.
//!
//! # Invariants
//!
//! * **No secret.** A value is shown only if it was read as one that may be: what is read in another way is hidden.
//! * **No list of its own.** What has been read is listed, and what counts where nothing is set is noted where it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use figment::value::Value;
use serde::Serialize;
use url::Url;

use super::environment::ENVIRONMENT;
use super::files::Text;
use super::key::Key;
use super::problem::Lines;
use super::section::{Reader, Section};
use super::sources::FILE;

/// A value that is in effect.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The key, as it would stand in a file: `channels.settlements.id`.
    pub key: String,
    /// The value, as it was written; `None` where it is hidden.
    pub value: Option<serde_json::Value>,
    /// Whether it is, or may be, a secret.
    pub hidden: bool,
    /// Where it was set.
    #[serde(flatten)]
    pub origin: Origin,
    /// The key whose value a channel takes, where it has none of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inherits: Option<String>,
}

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", rename_all = "lowercase")]
pub enum Origin {
    /// Nowhere: it is channeld's own.
    Default,
    /// In the operator's file.
    File {
        /// Its path.
        file: PathBuf,
        /// From 1 on.
        line: Option<usize>,
    },
    /// By an environment variable.
    Environment {
        /// Its name.
        variable: String,
    },
}

/// What there is to say of values, noted while they are read.
#[derive(Default)]
pub(super) struct Seen {
    /// How each that was read is shown.
    shown: BTreeMap<Key, Shown>,
    /// What counts where nothing is set.
    defaults: BTreeMap<Key, Value>,
    /// Keys of a channel that are not set, with the key whose value counts.
    inherited: BTreeMap<Key, Key>,
    /// Keys that do not count, because another one does in their place.
    replaced: BTreeSet<Key>,
}

enum Shown {
    AsItIs,
    As(String),
    Hidden,
}

impl Section<'_> {
    /// Notes that a value was read. It is shown, unless it was hidden before.
    pub(super) fn note_read(&self, name: &str) {
        self.reader.seen.borrow_mut().shown.entry(self.key.at(name)).or_insert(Shown::AsItIs);
    }

    /// Shows something else in the place of a value.
    pub(super) fn show_as(&self, name: &str, text: String) {
        self.reader.seen.borrow_mut().shown.insert(self.key.at(name), Shown::As(text));
    }

    /// Hides a value, which is a secret.
    pub(super) fn hide(&self, name: &str) {
        self.reader.seen.borrow_mut().shown.insert(self.key.at(name), Shown::Hidden);
    }

    /// Notes what counts for a key that is not set.
    pub(super) fn note_default(&self, name: &str, value: impl Into<Value>) {
        self.reader.seen.borrow_mut().defaults.insert(self.key.at(name), value.into());
    }

    /// Notes that a key is not set here, and what `other` has counts.
    pub(super) fn note_inherited(&self, name: &str, other: &Section<'_>) {
        self.reader.seen.borrow_mut().inherited.insert(self.key.at(name), other.key.at(name));
    }

    /// The first of two keys, which counts in the place of the second.
    pub(super) fn instead<'n>(&self, one: &'n str, other: &str) -> &'n str {
        self.reader.seen.borrow_mut().replaced.insert(self.key.at(other));
        one
    }
}

/// Each value that is in effect, in the order of the keys.
pub(super) fn settings(reader: &Reader, text: &Text) -> Vec<Setting> {
    let (seen, lines) = (reader.seen.borrow(), Lines::of(text));
    let mut settings = BTreeMap::new();
    each(&Key::default(), &reader.values, &mut |key, value| {
        if !seen.replaced.contains(&key) {
            let value = seen.shown.get(&key).and_then(|shown| shown.of(value));
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

impl Shown {
    /// What is shown of a value.
    fn of(&self, value: &Value) -> Option<serde_json::Value> {
        match self {
            Self::AsItIs => json(value),
            Self::As(text) => Some(text.as_str().into()),
            Self::Hidden => None,
        }
    }
}

/// As JSON, and an address without its query, which may hold a token.
fn json(value: &Value) -> Option<serde_json::Value> {
    let has_query = |text: &&str| Url::parse(text.trim()).is_ok_and(|url| url.query().is_some());
    match value.as_str().filter(has_query).and_then(|text| text.split_once('?')) {
        Some((address, _)) => Some(format!("{address}?…").into()),
        None => serde_json::to_value(value).ok(),
    }
}

/// Hands every value on, and not the tables that they are in.
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
