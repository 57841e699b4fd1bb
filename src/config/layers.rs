//! Where values come from: the compiled-in defaults, the operator's file, the environment, each over the one before.
//!
//! # Invariants
//!
//! * **Text stays text.** A variable's value is not parsed here: an API key of digits is no number.
//! * **No values in errors.** Of a file that is not TOML the line is named and not shown: it may hold a secret.

use std::ffi::OsString;
use std::path::Path;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::environment;
use super::files::Text;
use super::key::Key;
use super::problem::{ConfigError, Problem};
use super::table::{Merged, Reported};

/// The prefix of every variable of channeld.
pub(super) const PREFIX: &str = "CHANNELD_";

/// The kind of place that a variable is, in messages.
pub(super) const ENVIRONMENT: &str = "environment variable";

/// The documented keys with their defaults.
pub(crate) const DEFAULTS: &str = include_str!("../../config/default.toml");

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
        let nest = |inner: Value, name: &String| Dict::from([(name.clone(), inner)]).into();
        let nested: Value = key.names().iter().rev().fold(text.into(), nest);
        Self { kind, place: place.to_owned(), values: nested.into_dict().unwrap_or_default() }
    }

    fn file(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let place = path.display().to_string();
        let values = Toml::from_str(text).map_err(|error| {
            let lines = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            let line = error.span().map_or(String::new(), |span| format!("line {}: ", lines(span.start)));
            let message = format!("{line}not TOML: {}; correct the file", error.message().replace('\n', ", "));
            ConfigError::new(vec![Problem { key: "--config".to_owned(), origin: Some(place.clone()), message }])
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

/// What the layers say together.
pub(super) fn values(figment: &Figment) -> Dict {
    figment.data().ok().and_then(|mut profiles| profiles.remove(&Profile::Default)).unwrap_or_default()
}

/// Merges defaults, file and variables.
///
/// # Errors
/// Only where the file is not TOML: every other problem would follow from that one.
pub(super) fn merge(
    text: &Text,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Merged, ConfigError> {
    let mut figment = Figment::from(Layer::defaults());
    if let Some((path, text)) = &text.0 {
        figment = figment.merge(Layer::file(path, text)?);
    }
    let (layers, problems) = environment::layers(variables, &values(&figment));
    Ok(Merged::new(layers.into_iter().fold(figment, Figment::merge), problems))
}

/// Reads a part of what `file` and the process's variables say; a mistake elsewhere is no error.
///
/// # Errors
/// Every problem of that part; where the file cannot be read at all, that one.
pub(super) fn read_part<T>(
    file: Option<&Path>,
    read: impl FnOnce(&mut Merged) -> Result<T, Reported>,
) -> Result<T, ConfigError> {
    let mut merged = merge(&Text::read(file)?, std::env::vars_os())?;
    let part = read(&mut merged);
    merged.settle(part)
}
