//! Serves the requests over HTTP: on the control socket, on the admin listener, and to other instances.

pub(crate) mod answer;
pub(crate) mod client;
mod exposition;
mod hosts;
pub(crate) mod listener;
pub mod liveness;
pub(crate) mod router;
mod routes;
pub mod server;
pub(crate) mod socket;
