//! The simulator is correct: the verifier confirms the verdicts that it announces, and its API conforms to
//! spec/wire.md.

mod client;
mod content;
mod demonstration;
mod events;
mod faults;
mod life;
mod misbehaviour;
mod pages;
mod search;
mod versions;
