//! Events as the channel events service gives them, and the verification of the oracle network's signatures on them.
//!
//! [`event`] reads an event without believing it. [`verify`] holds its proof against a set of signers and gives a verdict. Nothing
//! else in channeld can make a [`Verified`](verify::Verified) event: its fields are private to this crate.
//!
//! No I/O, no clock, no configuration file. It is the only crate of channeld that has arithmetic of its own, and therefore the
//! only one that is optimized in a development build.

#![forbid(unsafe_code)]

pub mod event;
pub mod verify;
