//! Network access and helpers for channeld's clients and tasks.
//!
//! | module | contents |
//! |---|---|
//! | [`secret`] | a text that is never shown |
//! | [`http`] | TLS, proxies and headers of every client |
//! | [`postgres`] | connecting to a PostgreSQL server: the state's database and the databases of sinks |
//! | [`tasks`] | waiting for a newer value, joining a task, locking |
//! | [`memory`] | the memory limit of all channels together, and of each |
//! | [`retry`] | waits that grow |
//! | [`time`] | a time as an operator writes it |

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

pub mod http;
pub mod memory;
pub mod postgres;
pub mod retry;
pub mod secret;
pub mod tasks;
pub mod time;

/// An error with all its causes, on one line.
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        std::iter::successors(self.0.source(), |&error| error.source()).try_for_each(|cause| write!(f, ": {cause}"))
    }
}
