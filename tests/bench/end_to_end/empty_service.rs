//! A service that answers every request with the empty page. It costs much less than the simulated service, so that it does not
//! slow down a daemon with thousands of channels.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 31\r\n\r\n\
                        {\"events\":[],\"has_more\":false}\n";

/// The size of the stack of the thread for each connection.
const STACK: usize = 128 << 10;

/// The server. Its threads run until the process ends.
pub(crate) struct EmptyService {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    polls: AtomicU64,
    connections: AtomicUsize,
}

impl EmptyService {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = Self { address: listener.local_addr().unwrap(), counts: Arc::default() };
        let counts = service.counts.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let counts = counts.clone();
                thread::Builder::new().stack_size(STACK).spawn(move || counts.serve(&connection)).unwrap();
            }
        });
        service
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The number of polls so far.
    pub(crate) fn polls(&self) -> u64 {
        self.counts.polls.load(Ordering::Relaxed)
    }

    /// The number of connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }
}

impl Counts {
    fn serve(&self, connection: &TcpStream) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        // The daemon may close the connection at any time.
        let _ = self.answer_all(connection);
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn answer_all(&self, mut connection: &TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let (mut lines, mut line) = (BufReader::new(connection), String::new());
        loop {
            line.clear();
            if lines.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let is_poll = line.contains("/events?");
            while line != "\r\n" {
                line.clear();
                lines.read_line(&mut line)?;
            }
            self.polls.fetch_add(is_poll.into(), Ordering::Relaxed);
            connection.write_all(ANSWER)?;
        }
    }
}
