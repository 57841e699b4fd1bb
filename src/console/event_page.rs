//! The page of one event. The event comes from a table that a sink writes, from the daemon's quarantine or dead
//! letters, or from the service.

mod happened;
mod history;
mod lookup;
mod proof;
mod show;
mod shown_event;
mod undelivered;

pub(super) use lookup::{at_service, delivered, delivered_raw, of_table};
pub(super) use undelivered::{dead_letter, quarantined};
