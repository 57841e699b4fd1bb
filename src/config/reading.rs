//! Reads the merged sources key by key.
//!
//! A [`Section`] reads the keys of one table. It records in the [`Reader`] which keys were read and which problems they
//! have.

mod reader;
mod secrets;
mod section;
pub(super) mod values;

pub(super) use reader::{KeyUse, Reader, Reading, Reported, all};
pub(super) use section::{NAME_LIMIT, Section};
