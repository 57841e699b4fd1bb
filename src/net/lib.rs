//! Code that channeld's clients and tasks share. The head of each module states its contents.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;

pub mod http;
pub mod memory;
pub mod postgres;
pub mod request_size;
pub mod retry;
pub mod secret;
pub mod shortage;
pub mod tasks;
pub mod time;
pub mod turns;

/// An error with all its causes, on one line.
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        std::iter::successors(self.0.source(), |&error| error.source()).try_for_each(|cause| write!(f, ": {cause}"))
    }
}
