//! `channeld` as processes of an operator's machine: the daemon, its commands, its console, and a tracer.

mod admin;
mod browser;
mod clock;
mod command;
mod console;
mod daemon;
mod limits;
mod setup;
#[cfg(target_arch = "x86_64")]
mod tracer;

pub(crate) use admin::{Admin, Answered, value};
pub(crate) use browser::Browser;
pub(crate) use clock::Clock;
pub(crate) use command::{Told, signal};
pub(crate) use console::{Answer, Console, Visitor};
pub(crate) use daemon::{Daemon, Log};
pub(crate) use setup::{FILLER, Setup, fill_quarantine};
#[cfg(target_arch = "x86_64")]
pub(crate) use tracer::{Change, Strike, Traced, Traces};
