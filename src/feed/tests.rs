//! Tests of the calls over real connections, with a table in memory.

mod calls;
mod consumers;
mod description;
mod limits;
pub(crate) mod memory_table;
mod operators;
mod reload;
mod streams;
mod support;
mod tls;
