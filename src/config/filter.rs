//! Filters: which events a sink is given.

use strum::VariantArray;

use super::table::{Reading, Table};
use super::values::choice;
use crate::record::{Field, Filter, Rule};

/// Reads the filter `name`: the name of one, or a table with the values to accept of each field.
pub(super) fn read(table: &mut Table<'_>, name: &str) -> Reading<Filter> {
    if !table.is_table(name) {
        return Ok(table.optional(name, choice(&[("failures", ())]))?.map(|()| Filter::failures()));
    }
    let mut filter = table.table(name);
    let mut rule = Ok(Rule::default());
    for &field in Field::VARIANTS {
        let name = field.into();
        match filter.list(name) {
            Ok(None) => {}
            Ok(Some(values)) if values.is_empty() => {
                rule = Err(filter.wrong(name, "is empty, and no event would pass; name a value"));
            }
            Ok(Some(values)) => {
                if let Ok(rule) = &mut rule {
                    rule.insert(field, values);
                }
            }
            Err(reported) => rule = Err(reported),
        }
    }
    Ok(Some(Filter(vec![rule?])))
}
