//! The whole daemon, held to what it promises: the real binary, a simulated service, sinks as operators have them.
//!
//! A file a promise, or a few that belong together; `support` is what they stand on.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod support;

mod admin;
mod backlog;
mod check;
mod clock;
mod configuration;
mod crash;
mod dead_letters;
mod demonstration;
mod deploy;
mod faults;
mod files;
mod health;
mod isolation;
mod kills;
mod logs;
mod manual;
mod metrics;
mod model;
mod operate;
mod receivers;
mod reload;
mod replays;
mod restart;
mod robustness;
mod routing;
mod ruin;
mod shutdown;
mod simulator;
mod start;
mod state;
mod status;
mod systemd;
mod traces;
mod vectors;
mod verdicts;
mod version;
mod webhooks;
mod window;
