//! Tests of the whole daemon: the real binary, a simulated service, and sinks as operators use them.
//!
//! Each folder is a theme and each file a promise. `support` contains the shared parts.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod support;

mod cluster;
mod config;
mod console;
mod crash;
mod delivery;
mod deploy;
mod feed;
mod observe;
mod operate;
mod service;
mod simulator;
mod sinks;
mod verification;
