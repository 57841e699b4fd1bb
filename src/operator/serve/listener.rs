//! The admin listener: the reading half of the operator API over TCP, for probes, Prometheus and people.
//!
//! # Invariants
//!
//! * **A separate thread.** The listener answers even if every thread of the daemon's runtime is stuck, and requests of its
//!   clients take no resources from a channel.
//! * **Bounded:** see [`BOUNDS`].
//! * **No foreign web page can read it:** see `hosts`.
//!
//! # Cancellation
//!
//! Dropping [`Listener`] ends the thread at once, whatever its clients do.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{self, Runtime};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::hosts::{self, Hosts};
use super::router::{self, Sources};
use super::server::{self, Bounds};

/// No request needs a body.
const BOUNDS: Bounds = Bounds { clients: 64, body: 16 * 1024, each_step: Duration::from_secs(5) };

/// How many connections can wait to be accepted. A client that finds the queue full retries only after a second.
const BACKLOG: u32 = 4096;

/// The listener. It serves until it is dropped.
#[derive(Debug)]
pub struct Listener {
    /// The address that it listens on.
    pub address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens, and serves requests whose `Host` is an address or one of these names.
    ///
    /// # Errors
    /// If it cannot listen on the address, or cannot start a thread.
    pub fn start(address: SocketAddr, hosts: &[String], sources: Sources) -> io::Result<Self> {
        let router = router::reading(sources).layer(from_fn_with_state(Hosts::from(hosts), hosts::check));
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .thread_name("admin-report")
            .build()?;
        let listening = listen(address, &runtime).and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = match listening {
            Ok(listening) => listening,
            Err(error) => {
                // Dropping the runtime would block, which is not allowed in an async caller.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serve = move || {
            if let Some(Err(error)) = runtime.block_on(stopped.run_until_cancelled(serve(listener, router))) {
                error!(%error, "health, metrics and status are not served");
            }
            // A report may still be waiting for the state. Its client has gone.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(serve)?;
        info!(%address, "health, metrics and status are served");
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

fn listen(address: SocketAddr, runtime: &Runtime) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let _within = runtime.enter();
    socket.listen(BACKLOG)
}

async fn serve(listener: TcpListener, router: Router) -> io::Result<Infallible> {
    let accept = async || listener.accept().await.map(|(client, _)| client);
    Ok(server::serve(accept, router, BOUNDS).await)
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
