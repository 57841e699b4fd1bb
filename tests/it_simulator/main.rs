//! The simulator keeps its word: what it says of its events is what the verifier finds, and what it says of the
//! service is spec/wire.md.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod client;
mod events;
mod faults;
mod life;
mod pages;
mod search;
