//! The service over HTTP: its routes and their parameters, its answers, and the faults of its answers and connections.

mod answer;
pub(crate) mod backend;
pub(crate) mod connection;
mod description;
mod envelope;
mod gate;
mod query;
pub(crate) mod routes;
