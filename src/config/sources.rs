//! Where values come from: the compiled-in defaults, the operator's file, the environment, each over the one before.
//!
//! # Invariants
//!
//! * **Text stays text.** A variable's value is not parsed here: an API key of digits is no number.
//! * **No values in errors.** Of a file that is not TOML the line is named and not shown: it may hold a secret.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::key::Key;
use super::problem::ConfigError;

/// The documented keys with their defaults.
pub(crate) const DEFAULTS: &str = include_str!("../../config/default.toml");

/// All values, and where each was set.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) values: Table,
    origins: BTreeMap<Key, String>,
}

impl Sources {
    /// The defaults.
    pub(super) fn defaults() -> Self {
        let mut sources = Self::default();
        sources.merge("default", toml::from_str(DEFAULTS).expect("a test reads the compiled-in file"));
        sources
    }

    /// Puts a file over what there is.
    ///
    /// # Errors
    /// If it is not TOML.
    pub(super) fn add_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let values = toml::from_str(text).map_err(|error| {
            let lines = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
            let line = error.span().map_or(String::new(), |span| format!("line {}: ", lines(span.start)));
            let message = error.message().replace('\n', ", ");
            ConfigError::of_file(path, format!("{line}not TOML: {message}; correct the file"))
        })?;
        self.merge(&format!("file {}", path.display()), values);
        Ok(())
    }

    /// Puts one value over what there is.
    pub(super) fn set(&mut self, origin: &str, key: &Key, text: String) {
        let nest = |inner: Value, name: &String| Table::from_iter([(name.clone(), inner)]).into();
        if let Value::Table(values) = key.0.iter().rev().fold(text.into(), nest) {
            self.merge(origin, values);
        }
    }

    /// The kind of place that a value was set in, and which: `file /etc/channeld.toml`. `None` where there is no value.
    pub(super) fn origin(&self, key: &Key) -> Option<&str> {
        self.origins.get(key).map(String::as_str)
    }

    fn merge(&mut self, origin: &str, values: Table) {
        let Self { values: below, origins } = self;
        merge(below, values, &Key::default(), &mut |key| drop(origins.insert(key, origin.to_owned())));
    }
}

/// Puts values over those in the table at `at`.
fn merge(below: &mut Table, values: Table, at: &Key, set: &mut impl FnMut(Key)) {
    for (name, value) in values {
        let key = at.at(&name);
        set(key.clone());
        let Value::Table(values) = value else {
            below.insert(name, value);
            continue;
        };
        let mut inner = match below.remove(&name) {
            Some(Value::Table(inner)) => inner,
            _ => Table::new(),
        };
        merge(&mut inner, values, &key, set);
        below.insert(name, inner.into());
    }
}
