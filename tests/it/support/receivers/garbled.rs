//! A listener whose connections send garbage instead of HTTP on demand.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// The text that is sent instead of each answer. `None` changes nothing.
pub(super) type Garbage = Arc<Mutex<Option<&'static str>>>;

pub(super) struct GarbledListener {
    pub(super) tcp: TcpListener,
    pub(super) garbage: Garbage,
}

pub(super) struct GarbledStream {
    tcp: TcpStream,
    garbage: Garbage,
}

impl Listener for GarbledListener {
    type Io = GarbledStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (tcp, address) = Listener::accept(&mut self.tcp).await;
        (GarbledStream { tcp, garbage: self.garbage.clone() }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.tcp.local_addr()
    }
}

impl AsyncRead for GarbledStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(context, into)
    }
}

impl AsyncWrite for GarbledStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let garbage = *self.garbage.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(garbage) = garbage else { return Pin::new(&mut self.tcp).poll_write(context, bytes) };
        ready!(Pin::new(&mut self.tcp).poll_write(context, garbage.as_bytes()))?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
