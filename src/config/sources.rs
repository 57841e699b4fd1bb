//! The sources of values: the compiled-in defaults, the operator's files, the environment. Each source overrides the
//! previous one. The operator's files are one source: none of them overrides another one.
//!
//! # Invariants
//!
//! * **Text stays text.** A variable's value is not parsed here, so an API key that consists of digits does not become
//!   a number. (figment's own reader of variables would parse it.)
//! * **No values in errors.** The error for a file that is not TOML names the line and does not show it, because the line
//!   may contain a secret.

use std::path::Path;

use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::key::Key;
use super::problem::ConfigError;

pub(super) mod commands;
pub(super) mod environment;
pub(super) mod files;
pub(super) mod fragments;

/// The documented keys with their defaults.
pub(crate) const DEFAULTS: &str = include_str!("../../config/default.toml");

/// Values and their origin. The name of the origin is shown, such as `file /etc/channeld.toml`. The source of the origin
/// is the file or, for an environment variable, the name of the variable.
pub(crate) struct Layer {
    origin: Metadata,
    values: Dict,
}

impl Layer {
    /// One of the operator's files. Fails if its text is not TOML.
    pub(crate) fn file(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let values = Toml::from_str(text).map_err(|error| {
            let lines = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            let line = error.span().map_or(String::new(), |span| format!("line {}: ", lines(span.start)));
            let message = error.message().replace('\n', ", ");
            ConfigError::of_file(path, format!("{line}not TOML: {message}; correct the file"))
        })?;
        Ok(Self { origin: Metadata::from(format!("file {}", path.display()), path), values })
    }

    pub(crate) fn values(&self) -> &Dict {
        &self.values
    }

    /// One value, from a variable or a flag.
    pub(crate) fn value(origin: Metadata, key: &Key, text: String) -> Self {
        let nest = |inner: Value, name: &String| Dict::from([(name.clone(), inner)]).into();
        let values = key.0.iter().rfold(text.into(), nest).into_dict().unwrap_or_default();
        Self { origin, values }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.origin.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

pub(crate) fn defaults() -> Figment {
    let values = Toml::from_str(DEFAULTS).expect("a test reads the compiled-in file");
    Figment::from(Layer { origin: Metadata::named("default"), values })
}

/// Merges the layers into one table.
pub(crate) fn merged(layers: &Figment) -> Value {
    layers.find_value("").expect("no layer fails")
}
