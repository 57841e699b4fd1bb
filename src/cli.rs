//! The command line: one file a subcommand.
//!
//! # Invariants
//!
//! * **Results on standard output, everything else on standard error**, so that output can be piped.
//! * **What the service said is shown, not obeyed**: its texts reach a terminal without control characters.
//! * **A reader that leaves ends a command quietly**: a closed pipe is no failure.

pub mod connect;
pub mod exit;
pub mod get;
pub mod search;
mod shown;
pub mod verify;
pub mod wait_watcher;
