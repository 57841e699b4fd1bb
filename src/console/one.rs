//! The page of one event, wherever the event was found.

mod event;
mod found;
mod held;
mod journey;
mod proof;
mod show;

pub(super) use found::{at_service, delivered, delivered_raw, of_table};
pub(super) use held::{dead_letter, quarantined};
