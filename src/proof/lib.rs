//! Events as the channel events service returns them, and the verification of the oracle network's signatures on them.
//!
//! [`event`] reads an event without trusting it. [`verify`] checks its proof against a set of signers and returns a
//! verdict. No other code in channeld can make a [`Verified`](verify::Verified) event, because its fields are private to
//! this crate.
//!
//! No I/O, no clock, no configuration file. This is the only crate of channeld with its own arithmetic, so it is also the
//! only crate that is optimized in a development build.

#![forbid(unsafe_code)]

pub mod event;
pub mod verify;
