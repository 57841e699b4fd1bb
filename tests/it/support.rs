//! What the tests of the whole daemon stand on.

mod machine;
mod process;
mod receivers;
mod servers;
mod service;

pub(crate) use machine::*;
pub(crate) use process::*;
pub(crate) use receivers::*;
pub(crate) use servers::*;
pub(crate) use service::*;
