//! channeld-record(5): the hand-written part of the record's manual page, and the JSON Schema of the record.
//!
//! # Invariants
//!
//! * **Complete.** The manual page and the schema describe every field that can be written, and no other field. A test
//!   renders records with every field, and compares their fields with the manual page and the schema.
//! * **The same words.** The schema describes each field in the words of the manual page. A test compares the two.

use serde_json::Value;

/// The description of the record, its fields and the other formats, as roff source.
pub const MANUAL: &str = include_str!("manual/manual.roff");

/// A sample record, broken into lines.
pub const EXAMPLE: &str = include_str!("manual/example.json");

/// The JSON Schema of a record in the format `json`.
#[expect(clippy::missing_panics_doc, reason = "the schema is a constant that the tests have read")]
pub fn schema() -> Value {
    serde_json::from_str(include_str!("manual/schema.json")).expect("the schema is JSON")
}

#[cfg(test)]
mod tests;
