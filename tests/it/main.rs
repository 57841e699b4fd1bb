//! The whole daemon, held to what it promises: the real binary, a simulated service, sinks as operators have them.
//!
//! A folder a theme, a file a promise; `support` is what they stand on.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod support;

mod cluster;
mod config;
mod console;
mod crash;
mod delivery;
mod deploy;
mod observe;
mod operate;
mod service;
mod simulator;
mod sinks;
mod verification;
