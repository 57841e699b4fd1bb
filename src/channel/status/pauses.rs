//! The parts of a channel that do not run at the moment, because an operator paused them or a sink wants no more events.

use std::collections::BTreeMap;

use crate::status::Problem;
use ledger::Paused;

/// The paused parts of a channel.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    /// The pauses that the ledger stores.
    pub paused: Paused,
    /// Sinks that accept no more events, and why. They are offered nothing until an operator resumes them.
    pub(crate) gone: BTreeMap<String, Problem>,
    /// How often an operator has resumed each sink.
    pub(crate) resumed: BTreeMap<String, u64>,
}

impl Pauses {
    pub(crate) fn sink_goes_on(&self, sink: &str) -> bool {
        !self.paused.sinks.contains_key(sink) && !self.gone.contains_key(sink)
    }
}
