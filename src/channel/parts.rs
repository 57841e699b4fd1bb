//! The parts that all channels of a process share. They survive a reload of the configuration.

use std::sync::Arc;

use crate::controls::Handles;
use crate::machine::{Machine, Processors, ThisMachine};
use crate::verify::recent::RecentEvents;
use ledger::Ledgers;
use sink::OpenFiles;
use telemetry::metrics::Metrics;
use telemetry::trace::Traces;

/// The parts that exist once per process.
#[derive(Clone, Debug)]
pub struct SharedParts {
    /// The channels' ledgers.
    pub ledgers: Arc<Ledgers>,
    /// The channels' controls and status boards.
    pub handles: Arc<Handles>,
    /// The process's metrics.
    pub metrics: Metrics,
    /// Starts the traces of batches.
    pub traces: Traces,
    /// Recent events, which reveal duplicates and contradictions.
    pub recent: Arc<RecentEvents>,
    /// The files that sinks have open.
    pub open_files: OpenFiles,
    pub(super) machine: Arc<dyn Machine>,
}

impl SharedParts {
    /// Creates shared parts with these ledgers and processors, and without recent events.
    pub fn new(ledgers: Arc<Ledgers>, processors: Arc<Processors>, metrics: Metrics, traces: Traces) -> Self {
        let parts = Self::on(Arc::new(ThisMachine::new(processors)), ledgers);
        Self { metrics, traces, ..parts }
    }

    /// Creates shared parts on this machine, without traces.
    pub(super) fn on(machine: Arc<dyn Machine>, ledgers: Arc<Ledgers>) -> Self {
        let (handles, recent) = (Arc::default(), Arc::default());
        let (metrics, traces, open_files) = (Metrics::default(), Traces::default(), OpenFiles::default());
        Self { ledgers, handles, metrics, traces, recent, open_files, machine }
    }
}
