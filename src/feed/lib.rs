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
//! A client stores its own position (`events`, `stream`), or the feed stores a cursor for a consumer (`lease`, `commit`).
//! `channeld schema feed` prints the description of the calls ([`openapi`]).
//!
//! # Invariants
//!
//! * **No event is skipped.** Positions are dense, and a response begins with the event after the requested position. If this
//!   event was deleted, or the requested position does not exist, the response is a problem.
//! * **Every request needs a token,** except on a Unix socket. See `access`.
//! * **Records are not parsed again.** Clients receive the bytes that were delivered.
//! * **Everything is bounded:** connections and requests, in total and for each consumer; the sizes of requests, responses and
//!   all responses together; every wait, and the time that a client takes to read a part of its response.
//!
//! # Cancellation
//!
//! A request is canceled when its client disconnects. A lease that the client did not receive expires.

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
