//! Where values come from: the compiled-in defaults, the operator's file, the environment, each over the one before.
//!
//! # Invariants
//!
//! * **Text stays text.** A variable's value is never parsed here: an API key of digits is no number.
//! * **No values in errors.** Of a file that is not TOML the line is named and never shown: it may hold a secret.

use std::ffi::OsString;
use std::path::Path;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::environment;
use super::keys::{Key, Keys};
use super::problem::{ConfigError, Problem};
use super::text::Text;

/// What every variable of ours begins with.
pub(super) const PREFIX: &str = "CHANNELD_";

/// How messages call the place of a variable.
pub(super) const ENVIRONMENT: &str = "environment variable";

/// The documented keys with their defaults.
pub(super) const DEFAULTS: &str = include_str!("../../config/default.toml");

/// Values from one place.
pub(super) struct Layer {
    kind: &'static str,
    place: String,
    values: Dict,
}

impl Layer {
    /// The defaults.
    pub(super) fn defaults() -> Self {
        let values = Toml::from_str(DEFAULTS).expect("a test reads the compiled-in file");
        Self { kind: "default", place: String::new(), values }
    }

    /// One value, from the variable or flag called `place`.
    pub(super) fn value(kind: &'static str, place: &str, key: &Key, text: String) -> Self {
        let (last, tables) = key.names().split_last().expect("a key has a name");
        let leaf = Dict::from([(last.clone(), Value::from(text))]);
        let values = tables.iter().rev().fold(leaf, |inner, name| Dict::from([(name.clone(), inner.into())]));
        Self { kind, place: place.to_owned(), values }
    }

    fn file(path: &Path, text: &str) -> Result<Self, Problem> {
        let place = path.display().to_string();
        let values = Toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(String::new(), |span| format!("line {}: ", line_of(text, span.start)));
            let message = format!("{line}not TOML: {}; correct the file", error.message().replace('\n', ", "));
            Problem { key: "--config".to_owned(), origin: Some(place.clone()), message }
        })?;
        Ok(Self { kind: "file", place, values })
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::from(self.kind, self.place.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// Merges defaults, file and variables.
///
/// # Errors
/// Only where the file is not TOML: without it, every other problem would be noise.
pub(super) fn merge(
    text: &Text,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Keys, ConfigError> {
    let mut figment = Figment::from(Layer::defaults());
    if let Some((path, text)) = text.get() {
        figment = figment.merge(Layer::file(path, text).map_err(|problem| ConfigError::new(vec![problem]))?);
    }
    let written = figment.data().ok().and_then(|mut profiles| profiles.remove(&Profile::Default)).unwrap_or_default();
    let (layers, problems) = environment::layers(variables, &written);
    Ok(Keys::new(layers.into_iter().fold(figment, Figment::merge), problems))
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}
