//! The newest rows of a table: they provide the values of the filter menus, and an estimate of how many rows match.

use std::collections::BTreeMap;

use super::filter::{Facet, Filter};
use super::rows::Row;

/// How many of the newest rows provide the values of the filter menus.
pub(crate) const SAMPLED: usize = 2_000;

/// The newest rows.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) rows: Vec<Row>,
    /// The approximate number of rows in the table.
    pub(crate) total: u64,
}

impl Sample {
    /// Creates a sample from rows that are not in a table.
    pub(crate) fn of(rows: Vec<Row>) -> Self {
        Self { total: rows.len() as u64, rows }
    }

    /// The values of a column, the most frequent first, and how many of the newest rows have each value.
    pub(crate) fn values(&self, facet: Facet) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.rows {
            if let Some(value) = facet.of(row).filter(|value| !value.is_empty()) {
                *counts.entry(value).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(value, count)| (value.to_owned(), count)).collect();
        counts.sort_by(|(one, first), (other, second)| second.cmp(first).then_with(|| one.cmp(other)));
        counts
    }

    /// Estimates how many rows of the table match a filter without words: the share in the sample applied to the whole
    /// table.
    pub(crate) fn estimate(&self, filter: &Filter) -> Option<u64> {
        if filter.words.is_some() || self.rows.is_empty() {
            return None;
        }
        let matching = self.rows.iter().filter(|row| filter.lets_through(row)).count();
        let (matching, sampled) = (matching as u128, self.rows.len() as u128);
        u64::try_from(u128::from(self.total.max(self.rows.len() as u64)) * matching / sampled).ok()
    }

    /// Whether the sample contains all rows of the table.
    pub(crate) fn is_all(&self) -> bool {
        self.rows.len() < SAMPLED
    }
}
