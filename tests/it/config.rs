//! The configuration: mistakes are reported before anything starts, and a reload takes effect as a whole or not at all.

mod agreement;
mod agreement_local;
pub(crate) mod check;
mod database;
mod discovery;
mod effective;
mod init;
mod mistakes;
mod reload;
mod schema;
mod teams;
