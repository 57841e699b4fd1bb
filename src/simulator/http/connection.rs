//! Connections that can be reset or slowed down on purpose.
//!
//! # Invariants
//!
//! * **A reset is a reset.** A cut connection ends with RST, and not with an orderly end that a client could mistake for an
//!   answer.
//!
//! # Cancellation
//!
//! A connection's token is a child of the simulator's token: stopping the simulator cuts the open connections.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Interval, interval};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::fault_response::BETWEEN_BYTES;

/// The wait before accepting again after a failure, for example if the system is out of file descriptors.
const ACCEPT_RETRY_WAIT: Duration = Duration::from_millis(20);

/// An informational answer, which announces another answer.
const INFORMATIONAL: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";

/// Accepts connections that can be reset or slowed down.
pub(crate) struct Connections {
    listener: TcpListener,
    stop: CancellationToken,
}

/// Controls the connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    cut: CancellationToken,
    slowness: Arc<OnceLock<Slowness>>,
}

/// The bytes that a slowed-down connection sends each second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slowness {
    /// One byte of the real answer.
    ByteByByte,
    /// A 1xx answer, and nothing of the real answer.
    Informational,
}

/// A connection.
pub(crate) struct FaultyConnection {
    stream: TcpStream,
    control: Control,
    pace: Option<Interval>,
    cut_seen: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connections {
    pub(crate) fn new(listener: TcpListener, stop: CancellationToken) -> Self {
        Self { listener, stop }
    }
}

impl Control {
    fn new(cut: CancellationToken) -> Self {
        Self { cut, slowness: Arc::default() }
    }

    /// Makes the client's next read or write fail.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }

    /// Slows the connection down. Only the first call has an effect.
    pub(crate) fn slow_down(&self, slowness: Slowness) {
        self.slowness.get_or_init(|| slowness);
    }
}

impl Listener for Connections {
    type Io = FaultyConnection;
    type Addr = Control;

    async fn accept(&mut self) -> (FaultyConnection, Control) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let control = Control::new(self.stop.child_token());
                    return (FaultyConnection::new(stream, control.clone()), control);
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_WAIT).await,
            }
        }
    }

    /// Returns a control that is not connected to any connection.
    fn local_addr(&self) -> io::Result<Control> {
        Ok(Control::new(CancellationToken::new()))
    }
}

impl Connected<IncomingStream<'_, Connections>> for Control {
    fn connect_info(stream: IncomingStream<'_, Connections>) -> Self {
        stream.remote_addr().clone()
    }
}

impl FaultyConnection {
    fn new(stream: TcpStream, control: Control) -> Self {
        // Best effort: if this fails, small answers are late, but nothing else happens.
        let _ = stream.set_nodelay(true);
        let cut_seen = Box::pin(control.cut.clone().cancelled_owned());
        Self { stream, control, pace: None, cut_seen }
    }

    fn reset(&self) -> io::Error {
        // If this fails, the client sees an orderly end in the middle of an answer, which is an error too.
        let _ = self.stream.set_zero_linger();
        io::ErrorKind::ConnectionReset.into()
    }

    fn poll_write_slowly(&mut self, cx: &mut Context<'_>, buf: &[u8], slowness: Slowness) -> Poll<io::Result<usize>> {
        let pace = self.pace.get_or_insert_with(|| interval(BETWEEN_BYTES));
        loop {
            ready!(pace.poll_tick(cx));
            let stream = Pin::new(&mut self.stream);
            match slowness {
                Slowness::ByteByByte => return stream.poll_write(cx, buf.get(..1).unwrap_or(buf)),
                Slowness::Informational => drop(ready!(stream.poll_write(cx, INFORMATIONAL))?),
            }
        }
    }
}

impl AsyncRead for FaultyConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cut_seen.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for FaultyConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.control.cut.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        match self.control.slowness.get().copied() {
            Some(slowness) => self.poll_write_slowly(cx, buf, slowness),
            None => Pin::new(&mut self.stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.control.cut.is_cancelled() || self.control.slowness.get().is_some() {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[], |buf| buf));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Does not shut down a connection that has been cut, because that would send an orderly end before the reset.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.control.cut.is_cancelled() {
            return Poll::Ready(Err(self.reset()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
