//! Configuration: mistakes are reported before anything starts, and a reload applies completely or not at all.

pub(crate) mod check;
mod database;
mod effective;
mod init;
mod mistakes;
mod reload;
mod schema;
