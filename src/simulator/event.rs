//! Events: their subjects, their content, their proofs, and their records.

pub(crate) mod content;
pub(crate) mod contracts;
pub(crate) mod facts;
pub(crate) mod id;
pub(crate) mod kind;
pub(crate) mod log_entry;
pub(crate) mod network;
pub(crate) mod padding;
mod payload;
pub(crate) mod record;
pub(crate) mod roster;
