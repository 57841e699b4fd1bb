//! Keys that mean nothing here, and what was probably meant.

use std::collections::BTreeSet;

use figment::value::{Dict, Value};

use super::keys::Key;

/// What the configuration may contain.
#[derive(Default)]
pub(super) struct Known {
    /// The keys that were asked for; what lies below them is theirs.
    pub(super) values: BTreeSet<Key>,
    /// The tables they were looked for in.
    pub(super) tables: BTreeSet<Key>,
}

impl Known {
    /// The keys that nothing asked for. Of an unknown table only the table is named.
    pub(super) fn missing_from(&self, root: &Dict) -> Vec<Key> {
        let mut unknown = Vec::new();
        self.visit(root, &[], &mut unknown);
        unknown
    }

    fn visit(&self, table: &Dict, names: &[String], unknown: &mut Vec<Key>) {
        for (name, value) in table {
            let names = [names, std::slice::from_ref(name)].concat();
            let key = Key::from(names.clone());
            match value {
                _ if self.values.contains(&key) => {}
                Value::Dict(_, inner) if self.tables.contains(&key) => self.visit(inner, &names, unknown),
                _ if self.tables.contains(&key) => {}
                _ => unknown.push(key),
            }
        }
    }

    /// The known key that an unknown one was probably meant to be.
    pub(super) fn closest(&self, unknown: &Key) -> Option<&Key> {
        self.neighbour(unknown).or_else(|| self.namesake(unknown))
    }

    /// The key of the same table whose name differs by a slip or two.
    fn neighbour(&self, unknown: &Key) -> Option<&Key> {
        let (name, table) = unknown.names().split_last()?;
        let neighbours = self.values.iter().chain(&self.tables).filter_map(|key| {
            let (last, rest) = key.names().split_last()?;
            (rest == table).then(|| (strsim::damerau_levenshtein(name, last), key))
        });
        let slips = name.chars().count() / 3;
        neighbours
            .filter(|(distance, _)| *distance <= slips.max(1))
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, key)| key)
    }

    /// The key of the same name in another table, or the one that a variable with `_` between its levels meant.
    fn namesake(&self, unknown: &Key) -> Option<&Key> {
        let joined = unknown.names().join("_");
        let named = |key: &&Key| key.names().last() == unknown.names().last();
        self.values.iter().find(|key| key.names().join("_") == joined).or_else(|| self.values.iter().find(named))
    }
}
