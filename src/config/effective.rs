//! Lists the values in effect with their origins.
//!
//! # Invariants
//!
//! * **No secret.** A value is shown only if it was read as a value that may be shown. All other values are hidden.
//! * **No list of its own.** The list contains the keys that were read. A default is recorded where the code applies it.

use std::path::PathBuf;

use figment::value::Value;
use serde::Serialize;
use url::Url;

use super::key::Key;
use super::reading::{KeyUse, Reader};
use super::tables::channel::Channel;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Setting {
    /// The key as it is written in a file: `channels.settlements.id`.
    pub(crate) key: String,
    /// The value as it was written; `None` if it is hidden.
    pub(crate) value: Option<serde_json::Value>,
    /// Whether the value is, or may be, a secret.
    pub(crate) hidden: bool,
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// The key whose value the channel inherits, because the channel sets no value itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inherits: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "origin", rename_all = "lowercase")]
pub(crate) enum Origin {
    /// The default of channeld.
    Default,
    /// The operator's file, and the line, from 1.
    File { file: PathBuf, line: Option<usize> },
    /// `[discover]` has added the channel.
    Discovered,
    /// The environment variable with this name.
    Environment { variable: String },
}

/// Returns each value in effect, in the order of the keys.
pub(super) fn settings(reader: &Reader) -> Vec<Setting> {
    let lookups = reader.lookups.borrow();
    let setting = |(key, used): (&Key, &KeyUse)| {
        let (source, inherits) = match used {
            KeyUse::Inherits(other) => (other, Some(other.to_string())),
            _ => (key, None),
        };
        let value = match (lookups.keys.get(source)?, source.find_in(&reader.values)) {
            (KeyUse::Default(value), _) | (KeyUse::Shown, Some(value)) => json(value),
            (KeyUse::ShownAs(text), Some(_)) => Some(text.as_str().into()),
            (KeyUse::Known | KeyUse::Secret, Some(_)) => None,
            (KeyUse::Inherits(_) | KeyUse::Replaced, _) | (_, None) => return None,
        };
        let (hidden, origin) = (value.is_none(), origin(reader, source));
        Some(Setting { key: key.to_string(), value, hidden, origin, inherits })
    };
    lookups.keys.iter().filter_map(setting).collect()
}

/// Returns the settings of the channels that `[discover]` has added. `settings` are the other settings, from which they follow.
pub(super) fn of_discovered(settings: &[Setting], channels: &[Channel]) -> Vec<Setting> {
    let mut found = Vec::new();
    let shared = settings.iter().filter_map(|setting| Some((setting, setting.key.strip_prefix("discover.")?)));
    let shared: Vec<_> = shared.filter(|(_, name)| !["channels", "every"].contains(name)).collect();
    for Channel { channel, .. } in channels.iter().filter(|channel| channel.discovered) {
        let key = |name: &str| format!("channels.{}.{name}", channel.name);
        let (value, hidden) = (Some(channel.id.to_string().into()), false);
        found.push(Setting { key: key("id"), value, hidden, origin: Origin::Discovered, inherits: None });
        for &(setting, name) in &shared {
            let inherits = setting.inherits.as_ref().unwrap_or(&setting.key).clone();
            found.push(Setting { key: key(name), inherits: Some(inherits), ..setting.clone() });
        }
    }
    found
}

/// Converts a value to JSON. A URL is shown without its query, which may contain a token.
fn json(value: &Value) -> Option<serde_json::Value> {
    let has_query = |text: &&str| Url::parse(text.trim()).is_ok_and(|url| url.query().is_some());
    match value.as_str().filter(has_query).and_then(|text| text.split_once('?')) {
        Some((address, _)) => Some(format!("{address}?…").into()),
        None => serde_json::to_value(value).ok(),
    }
}

fn origin(reader: &Reader, key: &Key) -> Origin {
    match (reader.file(key), reader.variable(key)) {
        (Some(file), _) => Origin::File { file: file.to_owned(), line: reader.line(key) },
        (None, Some(variable)) => Origin::Environment { variable: variable.to_owned() },
        (None, None) => Origin::Default,
    }
}
