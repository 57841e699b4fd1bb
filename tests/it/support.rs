//! Support code for the tests of the whole daemon.

mod chaos;
mod machine;
mod process;
mod receivers;
mod servers;
mod service;

pub(crate) use chaos::*;
pub(crate) use machine::*;
pub(crate) use process::*;
pub(crate) use receivers::*;
pub(crate) use servers::*;
pub(crate) use service::*;
