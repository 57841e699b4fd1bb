//! A relay in front of a server, which can lose or delay requests and answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::LOOK_AGAIN;

/// How a relay treats requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Line {
    /// Both arrive.
    Good,
    /// Requests arrive. Instead of the answer, the connection ends.
    CutsAnswers,
    /// Requests arrive. Answers arrive only when the line is `Good` again. No connection ends.
    HoldsAnswers,
    /// Requests and answers arrive only when the line is `Good` again. No connection ends: if a client closes its
    /// connection, the server does not notice.
    Silent,
    /// Each part of a request arrives after [`DELAY`].
    Slow,
}

/// The delay of a `Slow` line.
const DELAY: Duration = Duration::from_millis(200);

/// The address on which the server listens.
#[derive(Clone, Debug)]
enum Target {
    Socket(PathBuf),
    Address(SocketAddr),
}

/// Text in each request that writes to the state or to a table of events: clients send the statement each time.
const COMMITS: [&[u8]; 2] = [b"set version = given.version", b"from lane, (select unnest("];

/// The beginning of PostgreSQL's message `CancelRequest`: its length and its code.
const CANCEL_REQUEST: [u8; 8] = [0, 0, 0, 16, 4, 210, 22, 46];

/// A running relay.
pub(crate) struct Relay {
    address: SocketAddr,
    target: Arc<Mutex<Target>>,
    state: Arc<State>,
    cut: Arc<Notify>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct State {
    line: AtomicU8,
    /// The line's state from the next commit on. `Good` changes nothing.
    at_commit: AtomicU8,
    /// How many bytes of requests pass in a second on each connection. 0: no limit.
    rate: AtomicUsize,
    /// The number of open connections.
    connections: AtomicUsize,
    /// The number of commits that a `Silent` line holds back.
    held: AtomicUsize,
    /// The number of pieces of requests and answers that a `Silent` line holds back.
    withheld: AtomicUsize,
    late: Mutex<Late>,
}

/// A request that arrives late. Its connection is silent until then, and other connections are not affected.
#[derive(Debug, Default)]
enum Late {
    #[default]
    None,
    /// Waits for the next request that contains these bytes.
    Awaited(Vec<u8>),
    Held,
    Delivered,
    /// The server has answered it.
    Executed,
}

impl Relay {
    /// A relay to the server at a socket.
    pub(crate) async fn before(socket: PathBuf) -> Self {
        Self::to(Target::Socket(socket)).await
    }

    /// A relay to the server at an address.
    pub(crate) async fn before_address(address: SocketAddr) -> Self {
        Self::to(Target::Address(address)).await
    }

    /// A relay to the server at a socket, for clients of this listener.
    pub(crate) fn listening(listener: TcpListener, socket: PathBuf) -> Self {
        Self::serve(listener, Target::Socket(socket))
    }

    async fn to(target: Target) -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), target)
    }

    fn serve(listener: TcpListener, target: Target) -> Self {
        let address = listener.local_addr().unwrap();
        let (state, cut) = (Arc::<State>::default(), Arc::<Notify>::default());
        let target = Arc::new(Mutex::new(target));
        let mut serving = JoinSet::new();
        let parts = (state.clone(), cut.clone(), target.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (state, cut, target) = parts.clone();
                let target = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
                connections.spawn(async move {
                    // If the server is down, the connection ends.
                    let cut = cut.notified();
                    match target {
                        Target::Socket(socket) => {
                            let Ok(server) = UnixStream::connect(&socket).await else { return };
                            state.connections.fetch_add(1, Ordering::Relaxed);
                            tokio::select! { () = relay(client, server, &state) => {}, () = cut => {} }
                        }
                        Target::Address(address) => {
                            let Ok(server) = TcpStream::connect(address).await else { return };
                            state.connections.fetch_add(1, Ordering::Relaxed);
                            tokio::select! { () = relay(client, server, &state) => {}, () = cut => {} }
                        }
                    }
                    state.connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, target, state, cut, _serving: serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the state of the line from now on.
    pub(crate) fn becomes(&self, line: Line) {
        self.state.line.store(line as u8, Ordering::Relaxed);
    }

    /// Lets only this many bytes of requests pass in a second on each connection. 0: no limit.
    pub(crate) fn passes(&self, bytes_per_second: usize) {
        self.state.rate.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Sets the state of the line from the next commit on, including that commit.
    pub(crate) fn becomes_at_commit(&self, line: Line) {
        self.state.at_commit.store(line as u8, Ordering::Relaxed);
    }

    /// Forwards new connections to the server at this socket.
    pub(crate) fn leads_to(&self, socket: PathBuf) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Target::Socket(socket);
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// The number of commits that a `Silent` line has held back.
    pub(crate) fn held(&self) -> usize {
        self.state.held.load(Ordering::Relaxed)
    }

    /// The number of pieces of requests and answers that a `Silent` line has held back.
    pub(crate) fn withheld(&self) -> usize {
        self.state.withheld.load(Ordering::Relaxed)
    }

    /// Holds the next request that contains these bytes, and all later requests on its connection. Later requests to cancel a
    /// statement are lost, because one of them could cancel the held request when that is delivered.
    pub(crate) fn holds_next(&self, bytes: &[u8]) {
        *self.state.late() = Late::Awaited(bytes.to_owned());
    }

    /// Whether a request is held.
    pub(crate) fn is_holding(&self) -> bool {
        matches!(*self.state.late(), Late::Held)
    }

    /// Forwards the held request to the server, whether or not its client still waits. Returns when the server has
    /// answered.
    pub(crate) async fn delivers_late(&self) {
        assert!(self.is_holding(), "no request is held");
        *self.state.late() = Late::Delivered;
        while !matches!(*self.state.late(), Late::Executed) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Ends every connection. Requests and answers that the relay still holds are lost.
    pub(crate) fn cut(&self) {
        self.cut.notify_waiters();
    }
}

impl State {
    fn late(&self) -> MutexGuard<'_, Late> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether these bytes are part of the request that arrives late.
    fn is_awaited(&self, bytes: &[u8]) -> bool {
        let mut late = self.late();
        let is_awaited = match &*late {
            Late::Awaited(what) => bytes.windows(what.len()).any(|part| part == what),
            _ => false,
        };
        if is_awaited {
            *late = Late::Held;
        }
        is_awaited
    }
}

async fn relay(client: TcpStream, server: impl AsyncRead + AsyncWrite, state: &State) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let is = |what: Line| state.line.load(Ordering::Relaxed) == what as u8;
    let held = async |lines: &[Line]| {
        while lines.iter().any(|line| is(*line)) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let is_late = AtomicBool::new(false);
    let until_late = async |is_there: fn(&Late) -> bool| {
        while !is_there(&state.late()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    let requests = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
            let of = |what: &[u8]| bytes[..count].windows(what.len()).filter(|part| *part == what).count();
            let commits: usize = COMMITS.into_iter().map(of).sum();
            if commits > 0 {
                let line = state.at_commit.swap(Line::Good as u8, Ordering::Relaxed);
                if line != Line::Good as u8 {
                    state.line.store(line, Ordering::Relaxed);
                }
            }
            if is(Line::Silent) {
                state.held.fetch_add(commits, Ordering::Relaxed);
                state.withheld.fetch_add(1, Ordering::Relaxed);
                held(&[Line::Silent]).await;
            }
            if bytes.starts_with(&CANCEL_REQUEST) && !matches!(*state.late(), Late::None) {
                return;
            }
            if is(Line::Slow) {
                tokio::time::sleep(DELAY).await;
            }
            let rate = state.rate.load(Ordering::Relaxed);
            if rate > 0 {
                tokio::time::sleep(
                    Duration::from_secs(1) * u32::try_from(count).unwrap() / u32::try_from(rate).unwrap(),
                )
                .await;
            }
            let is_awaited = state.is_awaited(&bytes[..count]);
            if is_awaited {
                until_late(|late| !matches!(late, Late::Held)).await;
                is_late.store(true, Ordering::Relaxed);
            }
            if to_server.write_all(&bytes[..count]).await.is_err() {
                return;
            }
            if is_awaited {
                until_late(|late| matches!(late, Late::Executed)).await;
            }
        }
    };
    let answers = async {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
            if is(Line::Silent) {
                state.withheld.fetch_add(1, Ordering::Relaxed);
            }
            if is_late.load(Ordering::Relaxed) {
                *state.late() = Late::Executed;
            }
            held(&[Line::Silent, Line::HoldsAnswers]).await;
            if is(Line::CutsAnswers) || to_client.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = requests => {}, () = answers => {} }
}
