//! Filters: which events a sink is given.

use super::keys::{Key, Keys, Reading};
use super::values::choice;
use crate::record::{Field, Filter, Rule};

/// The filters that have a name.
#[derive(Clone, Copy)]
enum Preset {
    Failures,
}

const PRESETS: [(&str, Preset); 1] = [("failures", Preset::Failures)];

/// Reads a filter: the name of one, or a table with the values to take of each field.
pub(super) fn read(keys: &mut Keys, filter: &Key) -> Reading<Filter> {
    if !keys.is_table(filter) {
        let preset = keys.optional(filter, choice(&PRESETS))?;
        return Ok(preset.map(|Preset::Failures| Filter::failures()));
    }
    let mut rule = Ok(Rule::default());
    for (name, field) in Field::NAMES {
        match keys.list(&filter.at(name)) {
            Ok(None) => {}
            Ok(Some(values)) if values.is_empty() => {
                rule = Err(keys.wrong(&filter.at(name), "is empty, and nothing would be taken; name a value"));
            }
            Ok(Some(values)) => rule = rule.map(|rule| rule.with(field, values)),
            Err(reported) => rule = Err(reported),
        }
    }
    Ok(Some(Filter::any(vec![rule?])))
}
