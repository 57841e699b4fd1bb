//! Health, metrics and status over HTTP: what probes, Prometheus and people ask a running daemon.
//!
//! | path | what it says |
//! |---|---|
//! | `/livez` | 200 where the process makes progress, 503 and what stands still where not: see [`Liveness`] |
//! | `/readyz` | 200 where everything is as it should be, 503 and why not, a reason a line; JSON for `Accept: application/json` |
//! | `/status` | the [`Report`](crate::control::Report) of `channeld status --json` |
//! | `/metrics` | Prometheus's text format: see [`metrics`](crate::metrics) |
//!
//! # Invariants
//!
//! * **Read-only.** GET and HEAD; anything else is answered with 405.
//! * **On a thread of its own.** It answers while every thread of the daemon's runtime is stuck, and what its clients ask
//!   takes no turn from a channel.
//! * **Bounded.** So many clients, so large a request, so long a conversation, one report at a time: see `server` and
//!   `routes`.
//!
//! # Cancellation
//!
//! Dropping [`Admin`] ends the thread at once, whatever its clients do.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::runtime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::control::Operations;
use crate::liveness::Liveness;
use crate::metrics::Metrics;

mod exposition;
mod routes;
mod server;

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[error("admin.listen: cannot listen on {address}: choose another address, or \"\" to serve nothing")]
pub struct AdminError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// What the answers are made of.
#[derive(Clone, Debug)]
pub struct Sources {
    /// For `/livez`.
    pub liveness: Liveness,
    /// Those of the configuration in force.
    pub operations: watch::Receiver<Arc<Operations>>,
    /// Counters and histograms.
    pub metrics: Metrics,
}

/// The listener, serving. Ends when it is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens, and serves from now on.
    ///
    /// # Errors
    /// If the address cannot be listened on: most often because somebody else does.
    pub fn start(address: SocketAddr, sources: Sources) -> Result<Self, AdminError> {
        let failed = |source| AdminError { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .thread_name("admin-report")
            .build()
            .map_err(failed)?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serve = move || {
            let serving = server::serve(listener, routes::router(sources));
            if let Some(Err(error)) = runtime.block_on(stopped.run_until_cancelled(serving)) {
                error!(%error, "health, metrics and status are not served");
            }
            // A report may still wait for the state; nobody waits for it.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(serve).map_err(failed)?;
        info!(%address, "health, metrics and status are served");
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that serves health, metrics and status panicked");
        }
    }
}

#[cfg(test)]
mod tests;
