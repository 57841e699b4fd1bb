//! A relay before a database server, which can lose what is on its way.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What becomes of what is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Line {
    /// It arrives.
    Good,
    /// Requests arrive; their answers do not, and the connection ends in their place.
    CutsAnswers,
    /// Nothing arrives, and nothing ends.
    Silent,
}

/// A running relay.
pub(crate) struct Relay {
    address: SocketAddr,
    line: Arc<AtomicU8>,
    cut: Arc<Notify>,
    _serving: JoinSet<()>,
}

impl Relay {
    /// Before the server at a socket.
    pub(crate) async fn before(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (line, cut) = (Arc::new(AtomicU8::new(Line::Good as u8)), Arc::<Notify>::default());
        let mut serving = JoinSet::new();
        let (state, cutting) = (line.clone(), cut.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (state, cutting, socket) = (state.clone(), cutting.clone(), socket.clone());
                connections.spawn(async move {
                    // A server that is away is a connection that ends.
                    let Ok(server) = UnixStream::connect(&socket).await else { return };
                    tokio::select! { () = relay(client, server, &state) => {}, () = cutting.notified() => {} }
                });
            }
        });
        Self { address, line, cut, _serving: serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the line is so.
    pub(crate) fn becomes(&self, line: Line) {
        self.line.store(line as u8, Ordering::Relaxed);
    }

    /// Ends every connection.
    pub(crate) fn cut(&self) {
        self.cut.notify_waiters();
    }
}

async fn relay(client: TcpStream, server: UnixStream, line: &AtomicU8) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is = |what: Line| line.load(Ordering::Relaxed) == what as u8;
    let silent = async || {
        while is(Line::Silent) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let requests = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
            silent().await;
            if to_server.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    let answers = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            silent().await;
            if is(Line::CutsAnswers) || to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = requests => {}, () = answers => {} }
}
