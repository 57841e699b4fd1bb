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

/// What is set, by its key, and where it was set. A table has an entry of its own, whose value is an empty table.
#[derive(Default)]
pub(super) struct Sources(BTreeMap<Key, (Value, String)>);

impl Sources {
    /// The defaults.
    pub(super) fn defaults() -> Self {
        let mut sources = Self::default();
        let values = toml::from_str(DEFAULTS).expect("a test reads the compiled-in file");
        sources.add("default", Key::default(), Value::Table(values));
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
        self.add(&format!("file {}", path.display()), Key::default(), Value::Table(values));
        Ok(())
    }

    /// Puts one value over what there is.
    pub(super) fn set(&mut self, origin: &str, key: &Key, text: String) {
        for table in key.tables() {
            self.0.entry(table).or_insert_with(|| (Table::new().into(), origin.to_owned()));
        }
        self.add(origin, key.clone(), text.into());
    }

    /// Puts a value, or everything in a table, over what there is.
    fn add(&mut self, origin: &str, key: Key, value: Value) {
        let value = match value {
            Value::Table(table) => {
                table.into_iter().for_each(|(name, value)| self.add(origin, key.at(&name), value));
                Table::new().into()
            }
            value => value,
        };
        self.0.insert(key, (value, origin.to_owned()));
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Value> {
        self.0.get(key).map(|(value, _)| value)
    }

    /// The kind of place that a value was set in, and which: `file /etc/channeld.toml`. `None` where there is no value.
    pub(super) fn origin(&self, key: &Key) -> Option<&str> {
        self.0.get(key).map(|(_, origin)| origin.as_str())
    }

    /// All keys, in ascending order: those in a table right behind it.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.0.keys()
    }

    /// The names in a table, in ascending order.
    pub(super) fn names(&self, table: &Key) -> impl Iterator<Item = &String> {
        let below = self.0.range(table..).map_while(|(key, _)| key.0.strip_prefix(table.0.as_slice()));
        below.filter_map(|names| match names {
            [name] => Some(name),
            _ => None,
        })
    }
}
