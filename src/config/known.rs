//! Unknown keys, and which known key was probably meant.

use std::collections::BTreeSet;

use figment::value::{Dict, Value};

use super::key::Key;

/// What the configuration may contain.
#[derive(Default)]
pub(super) struct Known {
    /// The keys that were read. What is below them belongs to them.
    pub(super) values: BTreeSet<Key>,
    /// The tables in which they were looked up.
    pub(super) tables: BTreeSet<Key>,
}

impl Known {
    /// The keys that were never read. Of an unknown table only the table is named.
    pub(super) fn unknown_in(&self, root: &Dict) -> Vec<Key> {
        let mut unknown = Vec::new();
        self.visit(root, &Key::default(), &mut unknown);
        unknown
    }

    fn visit(&self, table: &Dict, at: &Key, unknown: &mut Vec<Key>) {
        for (name, value) in table {
            let key = at.at(name);
            match value {
                _ if self.values.contains(&key) => {}
                Value::Dict(_, inner) if self.tables.contains(&key) => self.visit(inner, &key, unknown),
                _ if self.tables.contains(&key) => {}
                _ => unknown.push(key),
            }
        }
    }

    /// The known key that an unknown one was probably meant to be: a name of the same table with a few letters wrong, a
    /// variable with `_` between its levels, or the same name in another table.
    pub(super) fn closest(&self, unknown: &Key) -> Option<&Key> {
        let (name, table) = unknown.names().split_last()?;
        let most = (name.chars().count() / 3).max(1);
        let neighbours = self
            .values
            .iter()
            .chain(&self.tables)
            .filter(|key| key.names().split_last().is_some_and(|(_, above)| above == table));
        let misspelt = neighbours
            .map(|key| (strsim::damerau_levenshtein(name, key.name()), key))
            .filter(|(letters, _)| *letters <= most)
            .min_by_key(|(letters, _)| *letters);
        let joined = unknown.names().join("_");
        misspelt
            .map(|(_, key)| key)
            .or_else(|| self.values.iter().find(|key| key.names().join("_") == joined))
            .or_else(|| self.values.iter().find(|key| key.name() == name))
    }
}
