//! channeld-record(5): the manual page of the record, as far as it is written by hand.
//!
//! # Invariants
//!
//! * **Whole.** Every field that can be written has its paragraph, and nothing else has: a test renders records with every
//!   field.

/// What is said of the record, its fields and the other formats, in the language of manual pages.
pub const MANUAL: &str = include_str!("manual.roff");

/// A record, broken into lines.
pub const EXAMPLE: &str = include_str!("example.json");

#[cfg(test)]
mod tests;
