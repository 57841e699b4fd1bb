//! What channeld's clients and tasks share.
//!
//! | module | what it is |
//! |---|---|
//! | [`secret`] | a text that does not show itself |
//! | [`http`] | TLS, proxies and headers of every client |
//! | [`postgres`] | connecting to a PostgreSQL server: the state's database, and the ones that sinks write to |
//! | [`tasks`] | waiting for a newer value, joining a task, locking |
//! | [`memory`] | the memory of all channels together, and of each |
//! | [`retry`] | waits that grow |
//! | [`time`] | a time as an operator writes it |

#![forbid(unsafe_code)]

pub mod http;
pub mod memory;
pub mod postgres;
pub mod retry;
pub mod secret;
pub mod tasks;
pub mod time;

mod chain;

pub use chain::Chain;
