//! What the channels of a process share, and what stays when the configuration is read again.

use std::sync::Arc;

use crate::state::State;

use super::handle::Handles;
use super::machine::ThisMachine;
use super::replay::RecentEvents;

/// What is there once in a process, whatever its configuration says of its channels.
#[derive(Clone, Debug)]
pub struct Lasting {
    /// What is remembered on the disk.
    pub state: Arc<State>,
    /// Where operators reach the channels, and what is seen of them.
    pub handles: Arc<Handles>,
    pub(super) recent: Arc<RecentEvents>,
    pub(super) machine: Arc<ThisMachine>,
}

impl Lasting {
    /// Over an open state, with nothing let through yet.
    #[must_use]
    pub fn new(state: Arc<State>, handles: Arc<Handles>) -> Self {
        Self { state, handles, recent: Arc::default(), machine: Arc::new(ThisMachine::new()) }
    }
}
