//! channeld-record(5): the hand-written part of the record's manual page.
//!
//! # Invariants
//!
//! * **Complete.** Every field that can be written has a paragraph, and no other paragraph exists. A test renders records with
//!   every field and compares them with the page.

mod schema;

pub use schema::schema;

/// The description of the record, its fields and the other formats, as roff source.
pub const MANUAL: &str = include_str!("manual/manual.roff");

/// A sample record, broken into lines.
pub const EXAMPLE: &str = include_str!("manual/example.json");

#[cfg(test)]
mod tests;
