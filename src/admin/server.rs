//! Connections, bounded in every way that a slow or hostile client could stretch them.
//!
//! # Invariants
//!
//! * **One request a connection,** and [`CONVERSATION`] for all of it: nobody holds a place for longer.
//! * **[`MAX_CLIENTS`] at a time.** More wait to be let in.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

const MAX_CLIENTS: usize = 64;

/// How long a client may take to send a request's head.
const HEAD: Duration = Duration::from_secs(5);

/// How large that may be, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// How long a client may take for everything: to ask, and to take its answer.
const CONVERSATION: Duration = Duration::from_secs(20);

/// The wait after a client could not be let in.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Serves until it is dropped.
pub(super) async fn serve(listener: std::net::TcpListener, router: Router) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if clients.len() < MAX_CLIENTS => match accepted {
                Ok((client, _)) => {
                    clients.spawn(converse(client, router.clone()));
                }
                Err(error) => {
                    warn!(%error, "a client of the admin listener could not be let in");
                    sleep(ACCEPT_AGAIN).await;
                }
            },
            Some(_) = clients.join_next() => {}
        }
    }
}

async fn converse(client: TcpStream, router: Router) {
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(client), TowerToHyperService::new(router));
    match timeout(CONVERSATION, conversation).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a client of the admin listener left"),
        Err(_) => debug!("a client of the admin listener took too long"),
    }
}
