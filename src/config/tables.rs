//! The tables of the configuration: one file for each reads its keys into the settings of another module.

pub(super) mod api;
pub(super) mod channel;
pub(super) mod daemon;
mod database;
mod filter;
pub(super) mod sink;
pub(super) mod state;
mod tls;
pub(super) mod verification;
