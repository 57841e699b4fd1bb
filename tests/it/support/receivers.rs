//! Receivers of events, traces and metrics, which read back the data that they received.

mod collector;
mod files;
mod garbled;
mod prometheus;
mod receiver;
mod records;
mod tables;

pub(crate) use collector::{Collector, Manner, Span};
pub(crate) use files::{Files, place};
pub(crate) use prometheus::Prometheus;
pub(crate) use receiver::{Post, Receiver, Reply};
pub(crate) use records::{Delivered, offsets};
pub(crate) use tables::{Tables, rows_of, sqlite};
