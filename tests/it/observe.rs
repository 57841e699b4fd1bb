//! The daemon describes itself correctly in its status, probes, metrics, log and traces.

mod health;
mod logs;
mod metrics;
mod names;
mod probes;
mod progress;
mod screen;
mod status;
pub(crate) mod tail;
mod traces;
mod unknown;
