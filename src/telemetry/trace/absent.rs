//! The export of traces in a program that was built without it. The program cannot export, and says so.

use std::convert::Infallible;

use prometheus::IntCounter;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Otlp, SetupError, Traces};

/// There is none.
#[derive(Debug)]
pub struct Export(Infallible);

impl Export {
    /// Does not export.
    ///
    /// # Errors
    /// Always: this program was built without the export of traces.
    pub fn new(_otlp: watch::Receiver<Otlp>, _lost: IntCounter) -> Result<(Traces, Self), SetupError> {
        Err("this channeld was built without the feature otlp".into())
    }

    /// Never called: `new` always fails.
    #[expect(clippy::unused_async, reason = "as with the export")]
    pub async fn run(self, _stop: CancellationToken) {
        match self.0 {}
    }
}
