//! A forward proxy: it opens tunnels for clients with the right login, and records their requests.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A running proxy.
pub(crate) struct ForwardProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl ForwardProxy {
    /// `authorization` is the header that the proxy requires.
    pub(crate) async fn start(authorization: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let book = Arc::clone(&asked);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut tunnels = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let book = Arc::clone(&book);
                tunnels.spawn(async move {
                    let _ = tunnel(client, authorization, &book).await;
                });
            }
        });
        Self { address, asked, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The first line of each request.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn tunnel(mut client: TcpStream, authorization: &str, book: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head);
    let line = head.lines().next().unwrap_or_default().to_owned();
    book.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
    let known = |line: &str| {
        line.split_once(": ")
            .is_some_and(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization") && value == authorization)
    };
    let ["CONNECT", to, _] = line.split(' ').collect::<Vec<_>>()[..] else {
        return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n").await;
    };
    if !head.lines().any(known) {
        return client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n").await;
    }
    let mut server = TcpStream::connect(to).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}
