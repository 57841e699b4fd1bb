//! Reads the merged sources key by key.

mod secrets;
mod section;
mod seen;
pub(super) mod values;

pub(super) use section::{Reader, Reading, Reported, Section, all};
