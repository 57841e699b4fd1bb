//! Reads filters, which select the events for a sink.

use strum::VariantArray;
use uuid::Uuid;

use crate::config::reading::values::word;
use crate::config::reading::{Reading, Section};
use ::record::{Confidence, Field, Filter, Rule, UNSIGNED, VERIFIED};
use proof::event::EventType;
use proof::verify::Address;

/// Reads the filter `name`: either the name of a predefined filter, or a table with the accepted values of each field.
pub(crate) fn read(section: &Section<'_>, name: &str) -> Reading<Filter> {
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
        let values = filter.items(name, "is empty, and no event would pass; name a value", |number, value| {
            possible(field, value).map_err(|needed| {
                format!("item {number} of the list is not a value that an event can have: it must be {needed}")
            })?;
            if field == Field::Type && matches!(value.parse(), Ok(EventType::Other(_))) {
                // The service may have more types.
                let known = EventType::KNOWN.join(", ");
                filter.note(
                    name,
                    format!("item {number} of the list is not a type that this version knows, and perhaps no event has it; the known types are {known}"),
                );
            }
            Ok(value.to_owned())
        });
        // A list with a mistake still counts as a list for the checks that follow.
        if let Some(values) = values.unwrap_or(Some(Vec::new())) {
            rule.insert(field, values);
        }
    }
    let min_confidence = filter.optional("min_confidence", word::<Confidence>).unwrap_or_default();
    Ok(Some(Filter::any_of(vec![rule]).and_at_least(min_confidence)))
}

/// Checks whether an event can have this value. The error describes the valid values.
fn possible(field: Field, value: &str) -> Result<(), &'static str> {
    let is_word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let (is_possible, needed) = match field {
        Field::Type => (value.split('.').all(is_word), "a type, such as \"operation.status\""),
        Field::Status => (is_word(value), "a status, such as \"confirmed\""),
        Field::ChainSelector => (value.parse::<u64>().is_ok(), "a chain selector, in decimal digits"),
        Field::Address => (value.parse::<Address>().is_ok(), "an address, 0x and 40 hexadecimal digits"),
        Field::WatcherId | Field::WalletId | Field::OperationId | Field::QueryId => {
            (value.parse::<Uuid>().is_ok(), "an id, as the service shows it")
        }
        Field::Verification => (matches!(value, VERIFIED | UNSIGNED), "\"verified\" or \"unsigned\""),
        Field::EventName | Field::Service | Field::WalletOperationId => {
            (!value.is_empty(), "a string that is not empty")
        }
    };
    if is_possible { Ok(()) } else { Err(needed) }
}
