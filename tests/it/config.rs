//! A configuration: mistakes are named before anything starts, and another one takes effect as a whole or not at all.

pub(crate) mod check;
mod database;
mod effective;
mod init;
mod mistakes;
mod reload;
mod schema;
