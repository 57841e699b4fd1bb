//! The tables of the configuration. Each file reads the keys of one or more tables into the settings of another module.

pub(super) mod account;
pub(super) mod api;
pub(super) mod channel;
pub(super) mod console;
pub(super) mod daemon;
pub(super) mod discover;
pub(super) mod feed;
mod filter;
mod server;
pub(super) mod sink;
pub(super) mod state;
pub(super) mod verification;
