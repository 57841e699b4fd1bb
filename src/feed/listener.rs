//! Listens for clients of the feed, on TCP or on a Unix socket, with or without TLS.
//!
//! # Invariants
//!
//! * **Bounded:** see [`BOUNDS`].
//! * **One request per connection.** A proxy in front of the feed and the feed can therefore never disagree about where a request
//!   ends and the next one begins.
//! * **A slow TLS handshake does not delay other clients.** It runs in the task of its connection, within the time limit of the
//!   first read.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use net::http::Identity;
use operator::feed::{ConsumerRequest, FeedHandle};
use operator::server::{self, Bounds};

mod stream;

use crate::settings::{FeedSettings, Listen};
use crate::state::limits::AnswerMemory;
use crate::state::{FeedState, Served};
use crate::{calls, operators};

use stream::ClientStream;

/// The limits for clients. The settings limit the requests further.
pub(crate) const BOUNDS: Bounds =
    Bounds { clients: 4096, body: 16 << 10, each_step: Duration::from_secs(15), ends_with_client: true };

/// Connections beyond the largest number of requests. Their clients are told that the feed is busy.
const REFUSED_CLIENTS: usize = 16;

/// How long clients can take to read their responses when the daemon ends.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The socket is created in this private directory and then renamed, so that no other user can connect before its mode is set.
const CLOSED: &str = ".feed";

impl FeedSettings {
    /// The least limit of open files with which the feed serves `connections` requests at once. With a lower limit, it serves fewer.
    pub fn needed_limit_of_files(&self) -> u64 {
        (self.connections + REFUSED_CLIENTS) as u64 * server::SHARE_OF_DESCRIPTORS
    }
}

/// A listener that does not serve yet.
#[derive(Debug)]
pub struct FeedListener {
    socket: Socket,
    file: Option<SocketFile>,
    /// The connected clients.
    clients: TaskTracker,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The file of a Unix socket. It is removed when this value is dropped.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            debug!(%error, "the socket of the feed could not be removed");
        }
    }
}

impl FeedListener {
    /// Listens. No client is served yet.
    ///
    /// # Errors
    /// If the address or the path cannot be used, for example because another process uses it.
    pub async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Tcp(address) => Ok(Self::of(Socket::Tcp(TcpListener::bind(address).await?), None)),
            Listen::Unix(path) => Ok(Self::of(Socket::Unix(bind_socket(path)?), Some(SocketFile(path.clone())))),
        }
    }

    fn of(socket: Socket, file: Option<SocketFile>) -> Self {
        Self { socket, file, clients: TaskTracker::new() }
    }

    /// Returns a future that waits until all clients have disconnected, for at most `LAST_ANSWERS`. The caller must continue to poll
    /// [`serve`].
    pub fn last_answers(&self) -> impl Future<Output = ()> + use<> {
        let clients = self.clients.clone();
        async move {
            clients.close();
            // The connections of clients that do not read their responses are closed.
            let _ = timeout(LAST_ANSWERS, clients.wait()).await;
        }
    }

    /// The address, if the listener has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    /// The address for the log. With port 0, the system has chosen the port.
    pub fn shown(&self) -> Option<String> {
        match &self.socket {
            Socket::Tcp(_) => self.address().map(|address| address.to_string()),
            Socket::Unix(_) => self.file.as_ref().map(|SocketFile(path)| format!("unix:{}", path.display())),
        }
    }

    async fn accept(&self, tls: &mut Tls) -> io::Result<ClientStream> {
        Ok(match &self.socket {
            Socket::Tcp(listener) => {
                let (client, peer) = listener.accept().await?;
                // A small response is sent at once. If this cannot be set, responses are only slower.
                let _ = client.set_nodelay(true);
                ClientStream::tcp(client, peer, tls.acceptor()?, self.clients.token())
            }
            Socket::Unix(listener) => ClientStream::unix(listener.accept().await?.0, self.clients.token()),
        })
    }
}

/// Listens on a socket with mode 0600. Replaces a socket on which no process listens any more, and no other file.
fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "the path belongs to a file that is not a socket"));
        }
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => return Err(ErrorKind::AddrInUse.into()),
        _ => {}
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    operator::bind_private(path, &directory.join(CLOSED))
}

/// The operators of the feed: where requests are counted and consumers are reported, and the queue of their requests.
pub type Operators = (FeedHandle, mpsc::Receiver<ConsumerRequest>);

/// Serves the events of a table until it is dropped. `memory` is the limit for the events of all answers, in bytes. After a reload,
/// the next request uses the new table and settings. After `stop` was canceled, requests no longer wait, and new requests are
/// refused.
///
/// # Cancellation
///
/// Can be dropped at any point. Responses that were not sent completely are cut off.
pub async fn serve(
    listener: FeedListener,
    memory: usize,
    served: watch::Receiver<Arc<Served>>,
    operators: Operators,
    stop: CancellationToken,
) -> Infallible {
    serve_within(BOUNDS, listener, memory, served, operators, stop).await
}

pub(crate) async fn serve_within(
    bounds: Bounds,
    listener: FeedListener,
    memory: usize,
    served: watch::Receiver<Arc<Served>>,
    (operators, queue): Operators,
    stop: CancellationToken,
) -> Infallible {
    let state = FeedState {
        served: served.clone(),
        requests: Arc::default(),
        memory: AnswerMemory::new(memory),
        most_requests: bounds.clients_now().saturating_sub(REFUSED_CLIENTS).max(1),
        stop,
        is_local: matches!(listener.socket, Socket::Unix(_)),
        operators: operators.clone(),
    };
    info!(address = listener.shown(), "the feed is served");
    let mut tls = Tls { served: served.clone(), identity: None, acceptor: None };
    let accept = async || listener.accept(&mut tls).await;
    tokio::select! {
        never = server::serve(accept, calls::router(Arc::new(state)), bounds) => never,
        never = operators::answer(served, &operators, queue) => never,
    }
}

/// The current TLS settings.
struct Tls {
    served: watch::Receiver<Arc<Served>>,
    /// The certificate of the acceptor.
    identity: Option<Identity>,
    acceptor: Option<TlsAcceptor>,
}

impl Tls {
    /// The acceptor for the next connection. `None` for plain HTTP.
    ///
    /// # Errors
    /// If the certificate cannot be used, although it was checked when it was read. The connection is then closed. It is not served
    /// without TLS.
    fn acceptor(&mut self) -> io::Result<Option<&TlsAcceptor>> {
        let served = self.served.borrow();
        let identity = &served.settings.identity;
        if *identity != self.identity {
            let server = identity.as_ref().map(Identity::server).transpose().map_err(io::Error::other)?;
            self.acceptor = server.map(|server| Arc::new(server).into());
            self.identity.clone_from(identity);
        }
        drop(served);
        Ok(self.acceptor.as_ref())
    }
}
