//! Everything that the daemon reports about itself is true: status, probes, metrics, logs, traces.

mod health;
mod logs;
mod metrics;
mod probes;
mod progress;
mod screen;
mod status;
mod tail;
mod traces;
