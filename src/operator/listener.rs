//! The admin listener: the reading half of the operator API over TCP, for probes, Prometheus and people.
//!
//! # Invariants
//!
//! * **On a thread of its own.** It answers while every thread of the daemon's runtime is stuck, and its clients' requests
//!   take nothing from a channel.
//! * **Bounded:** see [`BOUNDS`].
//!
//! # Cancellation
//!
//! Dropping [`Listener`] ends the thread at once, whatever its clients do.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::router::{self, Sources};
use super::server::{self, Bounds};

/// No request needs a body.
const BOUNDS: Bounds = Bounds { clients: 64, body: 16 * 1024, each_step: Duration::from_secs(5) };

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[error("admin.listen: cannot listen on {address}: choose another address, or \"\" to serve nothing")]
pub struct ListenError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// The listener, which serves until it is dropped.
#[derive(Debug)]
pub struct Listener {
    /// Where it listens.
    pub address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens, and serves from now on.
    ///
    /// # Errors
    /// If the address cannot be listened on: most often because it is in use.
    pub fn start(address: SocketAddr, sources: Sources) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
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
            if let Some(Err(error)) = runtime.block_on(stopped.run_until_cancelled(serve(listener, sources))) {
                error!(%error, "health, metrics and status are not served");
            }
            // A report may still be waiting for the state; its client has gone.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(serve).map_err(failed)?;
        info!(%address, "health, metrics and status are served");
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

async fn serve(listener: TcpListener, sources: Sources) -> io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let accept = async || listener.accept().await.map(|(client, _)| client);
    Ok(server::serve(accept, router::reading(sources), BOUNDS).await)
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that serves health, metrics and status panicked");
        }
    }
}

#[cfg(test)]
mod tests;
