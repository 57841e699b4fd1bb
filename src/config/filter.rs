//! Filters: which events a sink is given.

use strum::VariantArray;

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
    let mut rule = Rule::default();
    for &field in Field::VARIANTS {
        let name = field.into();
        let Ok(Some(values)) = filter.list(name) else { continue };
        if values.is_empty() {
            filter.wrong(name, "is empty, and no event would pass; name a value");
        }
        rule.insert(field, values);
    }
    Ok(Some(Filter(vec![rule])))
}
