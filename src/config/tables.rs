//! The tables of the configuration: one file for each reads its keys into the settings of another module.

pub(super) mod api;
pub(super) mod channel;
pub(super) mod daemon;
mod filter;
mod server;
pub(super) mod sink;
pub(super) mod state;
pub(super) mod verification;
