//! The service over HTTP: its routes and their parameters, its answers, and the faults of its answers and connections.

pub(crate) mod backend;
pub(crate) mod connection;
mod description;
mod envelope;
mod fault_response;
mod gate;
mod networks;
mod query;
pub(crate) mod routes;
