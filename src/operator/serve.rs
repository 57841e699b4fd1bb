//! Answers operators' requests over HTTP: on the control socket, on the admin listener, and from other instances.

mod exposition;
mod latest;
pub(crate) mod listener;
pub mod liveness;
pub(crate) mod router;
pub(crate) mod routes;
pub mod server;
pub(crate) mod socket;
