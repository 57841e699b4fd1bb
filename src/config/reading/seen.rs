//! Finds unknown keys, and the known key that was probably meant.

use std::collections::BTreeSet;

use figment::value::{Dict, Value};

use crate::config::key::Key;

/// The keys that the configuration may contain.
#[derive(Default)]
pub(in crate::config) struct Known {
    /// The keys that were read. Keys below them are part of their values.
    pub(in crate::config) values: BTreeSet<Key>,
    /// The tables in which keys were looked up.
    pub(in crate::config) tables: BTreeSet<Key>,
}

impl Known {
    /// The keys of a table that were never read. For an unknown table, only the table is returned.
    pub(in crate::config) fn unknown_in(&self, table: &Key, values: &Dict) -> Vec<Key> {
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

    /// The known key that was probably meant by an unknown one: a name in the same table with a few different letters, a
    /// variable with `_` between its levels, or the same name in another table. The last rule does not apply to keys of a
    /// sink.
    pub(in crate::config) fn closest(&self, unknown: &Key) -> Option<&Key> {
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
