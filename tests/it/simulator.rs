//! The simulator keeps its word: what it says of its events is what the verifier finds, and what it says of the
//! service is spec/wire.md.

mod client;
mod content;
mod demonstration;
mod events;
mod faults;
mod life;
mod misbehaviour;
mod pages;
mod search;
