//! The machine that tests run on: its programs, small file systems and lossy networks, and how tests wait.

mod mount;
mod network;
mod ports;
mod programs;
mod random;
mod skip;
mod wait;

pub(crate) use mount::{Mount, fill};
pub(crate) use network::Network;
pub(crate) use ports::free_address;
pub(crate) use programs::{can_trace, printed_lines, programs, run};
pub(crate) use random::random;
pub(crate) use skip::skip;
pub(crate) use wait::{LONGEST_WAIT, LOOK_AGAIN, eventually, everything, until_count};
