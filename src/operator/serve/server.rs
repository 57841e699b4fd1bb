//! Serves HTTP/1.1 connections. Every resource that a slow or hostile client can use is bounded.
//!
//! # Invariants
//!
//! * **One request per connection,** and a bound for each part of the request: see [`Bounds`].
//! * **A client that leaves cancels nothing,** unless [`Bounds::ends_with_client`] is set. A request that was read completely is
//!   carried out.
//! * **Served without a free descriptor.** If the process has no free descriptor, the next client gets one that is kept for it, so
//!   that probes and `status` are answered. When that client has been answered, its descriptor is kept for the next one: nothing
//!   else in the process can take it in between.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::File;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, warn};

use net::http;
use net::shortage::{DescriptorLimits, Shortage};

/// The maximum size of a request's head in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// How long to wait after a connection could not be accepted. The clients of probes wait meanwhile.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The clients of one listener can use this share of the descriptors that the process may have open: a sixteenth. The others stay
/// free for the state and the sinks.
pub const SHARE_OF_DESCRIPTORS: u64 = 16;

/// The least number of simultaneous connections, however few descriptors the process may have open.
const FEW_CLIENTS: usize = 4;

/// The limits for the clients of one listener. The router limits the work itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The number of simultaneous connections, unless the process may have only few descriptors open. A further connection replaces the oldest connection that has not sent a
    /// whole request. If every connection has sent its request, the further connection waits.
    pub clients: usize,
    /// The maximum size of a request's body in bytes.
    pub body: usize,
    /// How long a client can take for each step: to send the request's head, to send the body, and to read each part of the
    /// answer. Each part of an answer that is streamed must also be ready within this time.
    pub each_step: Duration,
    /// Whether a request ends when its client closes the connection. This is for requests that only wait and read: their connection
    /// is then free at once.
    pub ends_with_client: bool,
}

/// Something that is open only so that its descriptor can be used for a client.
pub type SpareDescriptor = Box<dyn Send>;

/// A connection of a client.
pub trait ServedStream: AsyncRead + AsyncWrite + Send + Sized + Unpin + 'static {
    /// The client's address, if clients of this kind have one.
    fn peer(&self) -> Option<SocketAddr>;

    /// Keeps only what has the descriptor, after the connection was shut down.
    fn into_spare(self) -> SpareDescriptor {
        Box::new(self)
    }
}

impl ServedStream for TcpStream {
    fn peer(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }
}

impl ServedStream for UnixStream {
    fn peer(&self) -> Option<SocketAddr> {
        None
    }
}

/// The address of the client that sent a request. It is an extension of each request.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub Option<SocketAddr>);

impl Bounds {
    /// The number of simultaneous connections that this process serves.
    pub fn clients_now(&self) -> usize {
        self.clients_within(DescriptorLimits::now().map_or(u64::MAX, |limits| limits.soft))
    }

    /// The number of simultaneous connections if the process may have this number of descriptors open.
    fn clients_within(&self, descriptors: u64) -> usize {
        let share = usize::try_from(descriptors / SHARE_OF_DESCRIPTORS).unwrap_or(usize::MAX);
        self.clients.min(share.max(FEW_CLIENTS))
    }
}

/// Serves until it is dropped.
pub async fn serve<C: ServedStream>(
    mut accept: impl AsyncFnMut() -> io::Result<C>,
    router: Router,
    bounds: Bounds,
) -> Infallible {
    let (mut clients, mut idle) = (JoinSet::new(), VecDeque::new());
    let mut spare = spare_descriptor();
    let most = bounds.clients_now();
    loop {
        tokio::select! {
            accepted = accept() => match accepted {
                Ok(client) => {
                    while let Some(ended) = clients.try_join_next() {
                        spare = kept(spare, ended);
                    }
                    idle.retain(IdleClient::is_waited_for);
                    if clients.len() >= most
                        && !idle.pop_front().is_some_and(IdleClient::evict)
                        && let Some(ended) = clients.join_next().await
                    {
                        spare = kept(spare, ended);
                    }
                    let asked = Arc::<AtomicBool>::default();
                    let task = clients.spawn(serve_client(client, router.clone(), bounds, asked.clone()));
                    idle.push_back(IdleClient { task, asked });
                    // Lets the task of this connection run first: if many clients connect at once, a request that has
                    // already arrived is read before its connection can be replaced.
                    yield_now().await;
                    spare = spare.or_else(spare_descriptor);
                }
                // The next attempt to accept uses the descriptor that was kept.
                Err(error) if Shortage::of(&error) == Some(Shortage::Descriptors) && spare.take().is_some() => {}
                Err(error) => {
                    let advice = Shortage::of(&error).map_or("", Shortage::advice).trim_start_matches("; ");
                    warn!(%error, advice, "a connection of a client could not be accepted");
                    sleep(ACCEPT_AGAIN).await;
                    spare = spare.or_else(spare_descriptor);
                }
            },
            Some(ended) = clients.join_next() => spare = kept(spare, ended),
        }
    }
}

fn spare_descriptor() -> Option<SpareDescriptor> {
    File::open("/").ok().map(|file| Box::new(file) as SpareDescriptor)
}

/// Keeps the descriptor of a connection that has ended, if no descriptor is kept.
fn kept<C: ServedStream>(
    spare: Option<SpareDescriptor>,
    ended: Result<Option<C>, JoinError>,
) -> Option<SpareDescriptor> {
    let of_client = || ended.ok().flatten().map(C::into_spare);
    spare.or_else(of_client).or_else(spare_descriptor)
}

/// A client that has not sent a whole request yet.
struct IdleClient {
    task: AbortHandle,
    /// Set when the whole request has arrived, or when the connection is evicted. Decides between the two: a request
    /// that arrives first is carried out.
    asked: Arc<AtomicBool>,
}

impl IdleClient {
    fn is_waited_for(&self) -> bool {
        !self.asked.load(Ordering::Relaxed) && !self.task.is_finished()
    }

    /// Ends the connection, unless its request has arrived meanwhile. Returns whether the connection was ended.
    fn evict(self) -> bool {
        let has_asked = self.asked.swap(true, Ordering::Relaxed);
        if !has_asked {
            self.task.abort();
        }
        !has_asked
    }
}

/// Returns the connection if it was shut down after its answer.
async fn serve_client<C: ServedStream>(
    mut client: C,
    router: Router,
    bounds: Bounds,
    asked: Arc<AtomicBool>,
) -> Option<C> {
    let (asked, peer) = (&asked, Peer(client.peer()));
    let (router, progress) = (&TowerToHyperService::new(router), &watch::Sender::new(None));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.each_step)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .half_close(!bounds.ends_with_client)
        .serve_connection(
            TokioIo::new(&mut client),
            service_fn(async |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                let answer = answer(request, router, bounds, asked).await;
                Ok::<_, Infallible>(answer.map(|body| WatchedBody::of(body, progress.clone())))
            }),
        );
    tokio::select! {
        ended = connection => match ended {
            Ok(()) => return Some(client),
            Err(error) => debug!(%error, "a connection of a client failed"),
        },
        () = no_progress(progress.subscribe(), bounds.each_step) => debug!("a client did not read its answer in time"),
    }
    None
}

/// Notes when each part of an answer is requested. By then, the client has read most of the earlier parts.
struct WatchedBody {
    body: Body,
    progress: watch::Sender<Option<Instant>>,
}

impl WatchedBody {
    fn of(body: Body, progress: watch::Sender<Option<Instant>>) -> Self {
        progress.send_replace(Some(Instant::now()));
        Self { body, progress }
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.progress.send_replace(Some(Instant::now()));
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Waits until the answer has made no progress for this long. An answer that has not begun is not waited for.
async fn no_progress(mut progress: watch::Receiver<Option<Instant>>, limit: Duration) {
    loop {
        let last = *progress.borrow_and_update();
        let deadline = last.map(|last| last + limit);
        let changed = async { progress.changed().await.is_ok() };
        let is_over = match deadline {
            Some(deadline) => timeout_at(deadline, changed).await.is_err(),
            None => !changed.await,
        };
        if is_over {
            return;
        }
    }
}

/// Reads the whole request before the router sees it.
async fn answer(
    request: Request<Incoming>,
    router: &TowerToHyperService<Router>,
    bounds: Bounds,
    asked: &AtomicBool,
) -> Response {
    let (head, body) = request.into_parts();
    match timeout(bounds.each_step, to_bytes(Body::new(body), bounds.body)).await {
        Ok(Ok(body)) => {
            if asked.swap(true, Ordering::Relaxed) {
                // The connection was evicted in the meantime, so this task is aborted at its next await.
                return pending().await;
            }
            let answer = router.call(Request::from_parts(head, Body::from(body))).await;
            answer.unwrap_or_else(|never| match never {})
        }
        // The body is malformed, or did not arrive completely.
        Ok(Err(error)) if http::find::<hyper::Error>(&error).is_some() => {
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
        Ok(Err(error)) => (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response(),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the request's body did not arrive in time").into_response(),
    }
}

#[cfg(test)]
mod tests;
