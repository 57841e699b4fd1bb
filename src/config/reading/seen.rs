//! The keys that were read: unknown keys can be found, and every value in effect can be listed.

use std::collections::{BTreeMap, BTreeSet};

use figment::value::{Dict, Value};

use crate::config::key::{Key, plain};

/// The keys that were read, and details about their values.
#[derive(Default)]
pub(crate) struct Seen {
    /// The keys that were looked up. Keys below them are part of their values.
    pub(crate) values: BTreeSet<Key>,
    /// The tables in which keys were looked up.
    pub(crate) tables: BTreeSet<Key>,
    /// How each value that was read is shown.
    pub(crate) shown: BTreeMap<Key, Presentation>,
    /// The defaults of keys that are not set.
    pub(crate) defaults: BTreeMap<Key, Value>,
    /// Keys of a channel that are not set, with the key whose value they inherit.
    pub(crate) inherited: BTreeMap<Key, Key>,
    /// Keys without effect, because another key replaces them.
    pub(crate) replaced: BTreeSet<Key>,
}

/// How a value is shown.
pub(crate) enum Presentation {
    AsItIs,
    As(String),
    Hidden,
}

impl Seen {
    /// The keys of a table that were never read. For an unknown table, only the table is returned.
    pub(crate) fn unknown_in(&self, table: &Key, values: &Dict) -> Vec<Key> {
        let unknown = values.iter().flat_map(|(name, value)| {
            let key = table.at(name);
            match value {
                _ if self.values.contains(&key) => Vec::new(),
                Value::Dict(_, inner) if self.tables.contains(&key) => self.unknown_in(&key, inner),
                _ if self.tables.contains(&key) => Vec::new(),
                _ => vec![key],
            }
        });
        unknown.collect()
    }

    /// Whether a variable for this key sets a key that was read, or a table around it or in it.
    pub(crate) fn concerns(&self, key: &Key) -> bool {
        let is_alike = |known: &Key| known.0.iter().zip(&key.0).all(|(known, name)| plain(known) == plain(name));
        // Another key of a table around the key that was read does not concern it.
        let tables = self.tables.iter().filter(|table| table.0.len() >= key.0.len());
        self.values.iter().chain(tables).any(is_alike)
    }

    /// The known key that was probably meant by an unknown one: a name in the same table with a few different letters, a
    /// variable with `_` between its levels, or the same name in another table. The last rule does not apply to keys of a
    /// sink.
    pub(crate) fn closest(&self, unknown: &Key) -> Option<&Key> {
        let (name, table) = unknown.0.split_last()?;
        let most = (name.chars().count() / 3).max(1);
        let known = self.values.iter().chain(&self.tables);
        let misspelt = known
            .filter(|key| key.0.split_last().is_some_and(|(_, above)| above == table))
            .map(|key| (strsim::damerau_levenshtein(name, key.name()), key))
            .filter(|(letters, _)| *letters <= most)
            .min_by_key(|(letters, _)| *letters);
        let joined = unknown.0.join("_");
        misspelt
            .map(|(_, key)| key)
            .or_else(|| self.values.iter().find(|key| key.0.join("_") == joined))
            // The names of sinks are the operator's choice, and each type has its own keys.
            .or_else(|| self.values.iter().find(|key| key.name() == name && !is_sink(unknown)))
    }
}

fn is_sink(key: &Key) -> bool {
    key.0.first().is_some_and(|table| table == "sinks")
}
