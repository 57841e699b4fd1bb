//! The connection of a client: TCP, TLS over TCP, or a Unix socket.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tokio_util::task::task_tracker::TaskTrackerToken;

use operator::server::{ServedStream, SpareDescriptor};

pub(super) struct ClientStream {
    transport: Transport,
    peer: Option<SocketAddr>,
    /// Counts the client as connected until it is dropped.
    _connected: TaskTrackerToken,
}

enum Transport {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// The TLS handshake has not ended.
    Handshake(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl ClientStream {
    pub(super) fn tcp(
        client: TcpStream,
        peer: SocketAddr,
        tls: Option<&TlsAcceptor>,
        connected: TaskTrackerToken,
    ) -> Self {
        let transport = match tls {
            Some(tls) => Transport::Handshake(Box::new(tls.accept(client))),
            None => Transport::Tcp(client),
        };
        Self { transport, peer: Some(peer), _connected: connected }
    }

    pub(super) fn unix(client: UnixStream, connected: TaskTrackerToken) -> Self {
        Self { transport: Transport::Unix(client), peer: None, _connected: connected }
    }

    /// Carries out the handshake, unless it has ended or the connection has none.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Transport::Handshake(handshake) = &mut self.transport {
            let client = ready!(Pin::new(&mut **handshake).poll(context))?;
            self.transport = Transport::Tls(Box::new(client));
        }
        Poll::Ready(Ok(()))
    }
}

impl ServedStream for ClientStream {
    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn into_spare(self) -> SpareDescriptor {
        Box::new(self.transport)
    }
}

/// A pinned reference to the transport after the handshake. Before it, the result is an error.
macro_rules! transport {
    ($stream:expr, $client:ident => $call:expr) => {
        match &mut $stream.transport {
            Transport::Tcp(client) => {
                let $client = Pin::new(client);
                $call
            }
            Transport::Unix(client) => {
                let $client = Pin::new(client);
                $call
            }
            Transport::Tls(client) => {
                let $client = Pin::new(&mut **client);
                $call
            }
            Transport::Handshake(_) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_ready(context))?;
        transport!(self, client => client.poll_read(context, buffer))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_ready(context))?;
        transport!(self, client => client.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_ready(context))?;
        transport!(self, client => client.poll_write_vectored(context, parts))
    }

    /// Without this, hyper copies each part of a response into one buffer, which keeps its size as long as the connection is open. A
    /// stream that has sent many events would use this memory while it waits for the next one.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing was written before the end of the handshake.
        if matches!(self.transport, Transport::Handshake(_)) {
            return Poll::Ready(Ok(()));
        }
        transport!(self, client => client.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection is closed when it is dropped.
        if matches!(self.transport, Transport::Handshake(_)) {
            return Poll::Ready(Ok(()));
        }
        transport!(self, client => client.poll_shutdown(context))
    }
}
