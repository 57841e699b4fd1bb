//! The service beside the simulator: services that answer what a test says, and the truth about the simulated one.

mod scripted;
mod signed;
mod times;
mod truth;

pub(crate) use scripted::Scripted;
pub(crate) use signed::{serving, signed};
pub(crate) use times::{LAST_SECOND, created, past_events};
pub(crate) use truth::{crowded_second, deliverable, records};
