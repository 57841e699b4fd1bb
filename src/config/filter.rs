//! Filters: which events a sink is given.

use super::section::{Reading, Section};
use crate::record::{Field, Filter, Rule};

/// Reads the filter `name`: the name of one, or a table with the values to accept of each field.
pub(super) fn read(section: &Section<'_>, name: &str) -> Reading<Filter> {
    if !section.is_table(name) {
        return section.optional(name, |text| match text.trim() {
            "failures" => Ok(Filter::failures()),
            _ => Err("must be \"failures\"".to_owned()),
        });
    }
    let filter = section.section(name);
    let mut rule = Ok(Rule::default());
    for &field in Field::all() {
        let name = field.name();
        match filter.list(name) {
            Ok(None) => {}
            Ok(Some(values)) if values.is_empty() => {
                rule = Err(filter.wrong(name, "is empty, and no event would pass; name a value"));
            }
            Ok(Some(values)) => rule = rule.map(|rule| rule.with(field, values)),
            Err(reported) => rule = Err(reported),
        }
    }
    Ok(Some(Filter::any(vec![rule?])))
}
