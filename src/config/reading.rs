//! Reads the merged sources key by key.
//!
//! A [`Section`] reads the keys of one table. It records in the [`Reader`] which keys were read and what is wrong with them.

mod reader;
mod secrets;
mod section;
mod seen;
pub(super) mod values;

pub(super) use reader::{Reader, Reading, Reported, all};
pub(super) use section::Section;
pub(super) use seen::Presentation;
