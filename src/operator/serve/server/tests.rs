use std::sync::Arc;
use std::task::ready;

use axum::extract::Path;
use axum::routing::post;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::Sleep;

use super::*;

const BOUNDS: Bounds = Bounds { clients: 1, body: 10, each_step: Duration::from_millis(200), ends_with_client: false };

const MAX_WAIT: Duration = Duration::from_secs(30);

/// The number of parts of a streamed answer.
const PARTS: usize = 6;

/// More than the buffers of a socket can contain.
const LARGE: usize = 16 * 1024 * 1024;

struct Client {
    directory: TempDir,
    worked: Arc<Notify>,
}

/// Runs a test against a server.
async fn served(test: impl AsyncFnOnce(Client)) {
    served_within(BOUNDS, test).await;
}

async fn served_within(bounds: Bounds, test: impl AsyncFnOnce(Client)) {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("s")).unwrap();
    let worked = Arc::new(Notify::new());
    let done = worked.clone();
    // Longer than the time that a client has for each step.
    let work = async move || {
        sleep(2 * BOUNDS.each_step).await;
        done.notify_one();
    };
    let answer = async |Path(size): Path<usize>| vec![b'x'; size];
    let router = Router::new().route("/work", post(work)).route("/answer/{size}", post(answer));
    let router = router.route("/wait", post(pending::<()>));
    let router =
        router.route("/parts", post(async || Body::new(Parts { left: PARTS, next: Box::pin(sleep(Duration::ZERO)) })));
    let accept = async || listener.accept().await.map(|(client, _)| client);
    tokio::select! {
        never = serve(accept, router, bounds) => match never {},
        () = test(Client { directory, worked }) => {}
    }
}

/// An answer whose parts together take longer than a step.
struct Parts {
    left: usize,
    next: Pin<Box<Sleep>>,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.next.as_mut().poll(context));
        let Some(left) = self.left.checked_sub(1) else { return Poll::Ready(None) };
        *self = Self { left, next: Box::pin(sleep(BOUNDS.each_step / 2)) };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"part")))))
    }
}

impl Client {
    /// Sends a request, and reads until the server closes the connection.
    async fn ask(&self, request: &str) -> String {
        let mut client = self.connect(request).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn connect(&self, request: &str) -> UnixStream {
        let mut client = UnixStream::connect(self.directory.path().join("s")).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }
}

fn request(path: &str, body: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {body}\r\n\r\n")
}

#[tokio::test]
async fn a_slow_request_is_executed_beyond_the_client_timeout() {
    served(async |client| assert!(client.ask(&request("/work", 0)).await.starts_with("HTTP/1.1 200 "))).await;
}

#[tokio::test]
async fn idle_slow_and_oversized_requests_are_refused() {
    served(async |client| {
        for (sent, answered) in [
            (String::new(), ""),
            ("POST /answer".to_owned(), ""),
            (request("/answer/1", 5) + "1234", "HTTP/1.1 408 "),
            (request("/answer/1", 11) + "12345678901", "HTTP/1.1 413 "),
            (request("/answer/1", 10) + "1234567890", "HTTP/1.1 200 "),
        ] {
            let answer = timeout(MAX_WAIT, client.ask(&sent)).await.expect("the time is bounded");
            assert!(answer.starts_with(answered) && answer.is_empty() == answered.is_empty(), "{sent}: {answer}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_dropped() {
    served(async |client| {
        let _deaf = client.connect(&request(&format!("/answer/{LARGE}"), 0)).await;
        let next = timeout(MAX_WAIT, client.ask(&request("/answer/1", 0))).await.expect("the time is bounded");
        assert!(next.starts_with("HTTP/1.1 200 "), "{next}");
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_progresses_can_take_longer_than_a_step() {
    served(async |client| {
        let answer = timeout(MAX_WAIT, client.ask(&request("/parts", 0))).await.expect("the time is bounded");
        assert_eq!(answer.matches("part").count(), PARTS, "{answer}");
        assert!(answer.ends_with("\r\n0\r\n\r\n"), "it is complete: {answer}");
    })
    .await;
}

#[tokio::test]
async fn a_request_is_executed_although_its_client_has_left() {
    served(async |client| {
        drop(client.connect(&request("/work", 0)).await);
        timeout(MAX_WAIT, client.worked.notified()).await.expect("the request is carried out");
    })
    .await;
}

#[tokio::test]
async fn a_request_can_end_with_its_client() {
    served_within(Bounds { ends_with_client: true, ..BOUNDS }, async |client| {
        drop(client.connect(&request("/wait", 0)).await);
        // Only one connection is served at a time, and `/wait` never answers.
        let next = timeout(MAX_WAIT, client.ask(&request("/answer/1", 0))).await.expect("the request before it ends");
        assert!(next.starts_with("HTTP/1.1 200 "), "{next}");
    })
    .await;
}

#[test]
fn clients_can_use_only_a_share_of_the_descriptors() {
    let bounds = Bounds { clients: 64, ..BOUNDS };
    for (descriptors, expected) in [(0, 4), (64, 4), (256, 16), (1_024, 64), (524_288, 64), (u64::MAX, 64)] {
        assert_eq!(bounds.clients_within(descriptors), expected, "{descriptors}");
    }
    assert_eq!(BOUNDS.clients_within(0), 1);
}
