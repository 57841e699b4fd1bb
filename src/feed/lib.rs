//! The feed: applications read the verified events of a table over HTTP.
//!
//! ```text
//! client ──► listener ──► calls ──► access    tokens, and the channels that they allow
//!             TCP, TLS,     │
//!             Unix socket   └─────► state     settings, limits, waiting requests
//!                                     └────► table    of a `sqlite` or `postgres` sink
//! operator ──────────► operators ────────────┘    consumers, and their cursors
//! ```
//!
//! A client either keeps its position itself (`events`, `stream`), or the feed keeps the cursor of a named consumer (`lease`,
//! `commit`). `channeld schema feed` prints the description of the calls ([`openapi`]).
//!
//! # Invariants
//!
//! * **No event is skipped.** Positions are dense, and an answer begins at the position after the requested one. If its row was
//!   deleted, or if the position does not exist, the answer is a problem.
//! * **No token, no answer.** See `access`.
//! * **Records are not parsed again.** Clients receive the bytes that were delivered.
//! * **Everything is bounded:** connections and requests, in total and for each consumer; the sizes of requests, answers and all
//!   answers together; every wait, and the time that a client takes to read a part of its answer.
//!
//! # Cancellation
//!
//! A request ends when its client leaves. A lease that the client did not receive expires.

#![forbid(unsafe_code)]

mod access;
mod calls;
mod listener;
mod operators;
mod problem;
mod settings;
mod state;
pub mod table;
#[cfg(test)]
mod tests;

pub use listener::{FeedListener, Operators, serve};
pub use settings::{Consumer, FeedChannel, FeedSettings, Listen, TokenHash};
pub use state::Served;

/// The description of the calls, in the form of OpenAPI 3.1.
///
/// # Panics
///
/// Never: a test reads the description.
pub fn openapi() -> serde_json::Value {
    serde_json::from_str(include_str!("openapi.json")).expect("a test reads it")
}
