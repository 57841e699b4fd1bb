//! Remembers the status of a response whose remaining head cannot be read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use reqwest::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tasks::lock;

/// The length of the version, the status and the separator after it, in bytes.
const LENGTH: usize = b"HTTP/1.1 200 ".len();

/// The first bytes of the response to the current request of a connection. If the next request cannot be sent or is not
/// answered, the status of an earlier response must not be used for it. The bytes are therefore removed when the client has read
/// the head, and also when it writes more: a request can end while its response arrives, so that the head is never read.
#[derive(Clone, Default)]
pub(super) struct StatusLine(Arc<Mutex<Option<Vec<u8>>>>);

impl StatusLine {
    fn written(&self) {
        lock(&self.0).get_or_insert_default().clear();
    }

    fn read(&self, bytes: &[u8]) {
        if let Some(line) = &mut *lock(&self.0)
            && line.len() < LENGTH
        {
            // Servers may send line breaks before the status line.
            let breaks = bytes.iter().take_while(|byte| line.is_empty() && matches!(byte, b'\r' | b'\n')).count();
            line.extend(bytes[breaks..].iter().take(LENGTH - line.len()));
        }
    }

    /// Forgets the response, because the client has read its head.
    pub(super) fn forget(&self) {
        *lock(&self.0) = None;
    }

    /// The final status of the response. `None` if the response does not begin with a valid status line of HTTP/1.
    pub(super) fn status(&self) -> Option<StatusCode> {
        let line = lock(&self.0);
        let rest = line.as_ref()?.strip_prefix(b"HTTP/1.")?;
        let [b'0' | b'1', b' ', code @ .., b' ' | b'\r' | b'\n'] = rest else { return None };
        StatusCode::from_bytes(code).ok().filter(|status| !status.is_informational())
    }
}

/// A connection: to the server, to a proxy, or to the server through the tunnel of a proxy.
trait Stream: AsyncRead + AsyncWrite + Connection + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Connection + Send + Unpin> Stream for T {}

/// A connection that remembers the status line of each response.
pub(super) struct Watched {
    inner: Box<dyn Stream>,
    is_proxy: bool,
    status_line: StatusLine,
}

impl Watched {
    /// `is_proxy` tells whether a proxy sees the requests.
    pub(super) fn new(
        inner: impl AsyncRead + AsyncWrite + Connection + Send + Unpin + 'static,
        is_proxy: bool,
    ) -> Self {
        Self { inner: Box::new(inner), is_proxy, status_line: StatusLine::default() }
    }
}

impl Connection for Watched {
    fn connected(&self) -> Connected {
        self.inner.connected().proxy(self.is_proxy).extra(self.status_line.clone())
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let begin = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.status_line.read(&buf.filled()[begin..]);
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.status_line.written();
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.status_line.written();
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_status_line_of_a_final_response_has_a_status() {
        for (response, status) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 503 \r\n", Some(503)),
            ("HTTP/1.1 204\r\n", Some(204)),
            ("\r\nHTTP/1.1 204\n", Some(204)),
            ("HTTP/1.1 200OK\r\n", None),
            ("HTTP/1.1  200 OK\r\n", None),
            ("HTTP/1.1 20 OK\r\n", None),
            ("HTTP/1.1 099 OK\r\n", None),
            ("HTTP/1.1 2x0 OK\r\n", None),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", None),
            ("HTTP/2.0 200 OK\r\n", None),
            ("HTTP/1.1 200", None),
            ("", None),
        ] {
            let all_at_once = StatusLine::default();
            all_at_once.written();
            all_at_once.read(response.as_bytes());
            let in_bytes = StatusLine::default();
            in_bytes.written();
            response.bytes().for_each(|byte| in_bytes.read(&[byte]));
            for line in [all_at_once, in_bytes] {
                assert_eq!(line.status().map(|status| status.as_u16()), status, "{response:?}");
            }
        }
    }

    #[test]
    fn a_response_has_no_status_for_the_next_request() {
        let line = StatusLine::default();
        line.written();
        line.read(b"HTTP/1.1 200 OK\r\n");
        line.forget();
        line.read(b"HTTP/1.1 200 OK\r\n");
        assert_eq!(line.status(), None, "no request was written since");
        line.written();
        assert_eq!(line.status(), None, "nothing was answered since");
        line.read(b"HTTP/1.1 500 Internal Server Error\r\n");
        assert_eq!(line.status(), Some(StatusCode::INTERNAL_SERVER_ERROR));
        // A request that ends now does not forget this response.
        line.written();
        assert_eq!(line.status(), None, "nothing was answered since");
    }
}
