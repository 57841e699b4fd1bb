//! Connections that can be reset on purpose.
//!
//! # Invariants
//!
//! * **A reset is a reset.** A cut connection ends with RST, not with an orderly end that could be taken for an answer.
//!
//! # Cancellation
//!
//! A connection's token is a child of the simulator's: stopping the simulator cuts what is open.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Between two attempts to accept, where the system is out of file descriptors.
const ACCEPT_RETRY_WAIT: Duration = Duration::from_millis(20);

/// Accepts connections that can be reset.
pub(super) struct Connections {
    listener: TcpListener,
    stop: CancellationToken,
}

/// Cuts the connection that a request came by.
#[derive(Clone, Debug)]
pub(super) struct Scissors(CancellationToken);

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    cut: CancellationToken,
    cut_seen: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connections {
    pub(super) fn new(listener: TcpListener, stop: CancellationToken) -> Self {
        Self { listener, stop }
    }
}

impl Scissors {
    /// The client's next read or write fails.
    pub(super) fn cut(&self) {
        self.0.cancel();
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = Scissors;

    async fn accept(&mut self) -> (Connection, Scissors) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let cut = self.stop.child_token();
                    return (Connection::new(stream, cut.clone()), Scissors(cut));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_WAIT).await,
            }
        }
    }

    /// There is no connection to cut here.
    fn local_addr(&self) -> io::Result<Scissors> {
        Ok(Scissors(CancellationToken::new()))
    }
}

impl Connected<IncomingStream<'_, Connections>> for Scissors {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        stream.remote_addr().clone()
    }
}

impl Connection {
    fn new(stream: TcpStream, cut: CancellationToken) -> Self {
        // Best effort: without it small answers are late, and nothing else.
        let _ = stream.set_nodelay(true);
        let cut_seen = Box::pin(cut.clone().cancelled_owned());
        Self { stream, cut, cut_seen }
    }

    fn reset(&self) -> io::Error {
        // Where this fails the client sees an orderly end in the middle of an answer, which is an error too.
        let _ = self.stream.set_zero_linger();
        io::ErrorKind::ConnectionReset.into()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut_seen.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// A connection that has been cut is not shut down: that would send an orderly end before the reset.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
