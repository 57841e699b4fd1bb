//! The admin listener: the reading half of the operator API over TCP, for probes, Prometheus and people.
//!
//! # Invariants
//!
//! * **A separate thread.** The listener answers even if every thread of the daemon's runtime is stuck, and requests of its
//!   clients take no resources from a channel.
//! * **Bounded:** see [`BOUNDS`].
//! * **No foreign web page can read the answers.** The owner of a foreign page can point the page's own name at this
//!   listener (DNS rebinding). The browser sends that name as `Host`, so requests with an unknown name are refused. IP
//!   addresses are not names and are accepted: probes and Prometheus send them.
//!
//! # Cancellation
//!
//! Dropping [`Listener`] ends the thread at once, without waiting for clients.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{self, Runtime};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::router::{self, Sources};
use super::server::{self, Bounds};

/// No request needs a body, so the limit is small.
const BOUNDS: Bounds =
    Bounds { clients: 64, body: 16 * 1024, each_step: Duration::from_secs(5), ends_with_client: false };

/// How many connections can wait to be accepted. A client that finds the queue full retries only after a second.
const BACKLOG: u32 = 4096;

const UNKNOWN_HOST: &str = "channeld does not answer to this name: use an IP address, or add the name to admin.hosts\n";

/// The names in `admin.hosts`. `localhost` is accepted in addition.
type Hosts = Arc<[String]>;

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
        let router = router::reading(sources).layer(from_fn_with_state(Hosts::from(hosts), check_host));
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
            let accept = async || listener.accept().await.map(|(client, _)| client);
            runtime.block_on(stopped.run_until_cancelled(server::serve(accept, router, BOUNDS)));
            // A report may still wait for the state. No client waits for this report any more.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("admin".to_owned()).spawn(serve)?;
        info!(%address, "health, metrics and status are served");
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Checks whether a daemon could listen on the address. Accepts no connection, so that no client is disturbed.
    ///
    /// # Errors
    /// If it could not listen, for example because another process does.
    pub fn check(address: SocketAddr) -> io::Result<()> {
        bind(address).map(drop)
    }
}

fn listen(address: SocketAddr, runtime: &Runtime) -> io::Result<TcpListener> {
    let _within = runtime.enter();
    bind(address)?.listen(BACKLOG)
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            error!("the thread that serves health, metrics and status panicked");
        }
    }
}

/// Refuses requests for an unknown host.
async fn check_host(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    if is_known_host(request.headers(), &hosts) {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, UNKNOWN_HOST).into_response()
}

/// Whether the host of a request is known. A request without a host is accepted: browsers always send a host, so its
/// client is not a browser.
fn is_known_host(headers: &HeaderMap, hosts: &[String]) -> bool {
    let known = |host: &str| {
        let name = host_name(host);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        is("localhost") || hosts.iter().any(|known| is(known)) || name.parse::<IpAddr>().is_ok()
    };
    headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(known))
}

/// Removes the port, the brackets of an IPv6 address, and the final dot of a fully qualified name.
fn host_name(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests;
