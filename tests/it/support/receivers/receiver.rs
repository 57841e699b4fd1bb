//! A webhook endpoint that records each request, and refuses requests on demand.

use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, Version};
use axum::routing::post;
use axum::serve::Listener;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::rustls::ServerConfig;

use super::garbled::{Garbage, GarbledListener};
use crate::support::{Authority, Delivered, TlsListener};

/// The answer to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// This status, with this `Retry-After`. A refused request is not recorded.
    Refuse(u16, Option<u64>),
    /// 204, after this delay. The request is recorded immediately.
    Slow(Duration),
    /// No answer until [`Receiver::release`], and then 204. The request is recorded immediately.
    Hang,
}

/// A recorded request.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) version: Version,
    /// The path, and the query if the request has one.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The decompressed body.
    pub(crate) body: String,
    /// The body as it was received.
    pub(crate) bytes: usize,
    pub(crate) at: Instant,
}

impl Post {
    pub(crate) fn id(&self) -> &str {
        self.headers["webhook-id"].to_str().unwrap()
    }

    /// The records in the request: one record or a batch.
    pub(crate) fn delivered(&self) -> Vec<Delivered> {
        if !self.body.starts_with('[') {
            return vec![Delivered::parse(&self.body)];
        }
        let records: Vec<&RawValue> = serde_json::from_str(&self.body).unwrap();
        records.into_iter().map(|record| Delivered::parse(record.get())).collect()
    }
}

/// Selects the requests to refuse, by their body.
type Refused = Box<dyn Fn(&str) -> bool + Send>;

/// A running endpoint.
pub(crate) struct Receiver {
    url: String,
    book: Arc<Mutex<Book>>,
    garbage: Garbage,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Book {
    script: VecDeque<Reply>,
    always: Option<Reply>,
    refused: Option<(u16, Refused)>,
    requests: usize,
    accepted: Vec<Post>,
    tokens: Option<Tokens>,
    released: Arc<Notify>,
}

/// The state of the token endpoint, `/token`.
#[derive(Default)]
struct Tokens {
    /// The lifetime of each token, in seconds.
    seconds: u64,
    /// The requests for a token: headers and form.
    asked: Vec<(HeaderMap, String)>,
    /// The accepted token.
    current: Option<String>,
    /// The answer to send instead of a token.
    refusal: Option<(u16, &'static str)>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", tcp.local_addr().unwrap());
        let garbage = Garbage::default();
        Self { garbage: garbage.clone(), ..Self::serve(GarbledListener { tcp, garbage }, url) }
    }

    /// An endpoint with a certificate of this authority. It accepts only clients with a certificate of this authority.
    pub(crate) async fn start_tls(authority: &Authority) -> Self {
        Self::serve_tls(authority.server()).await
    }

    /// An endpoint that requests a client certificate, and also accepts clients without a certificate.
    pub(crate) async fn start_asking(authority: &Authority) -> Self {
        Self::serve_tls(authority.asking_server()).await
    }

    /// An endpoint that presents the certificate of this authority as its own.
    pub(crate) async fn start_as(authority: &Authority) -> Self {
        Self::serve_tls(authority.own_server()).await
    }

    async fn serve_tls(tls: Arc<ServerConfig>) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}/hook", tcp.local_addr().unwrap().port());
        Self::serve(TlsListener { tcp, tls: tls.into() }, url)
    }

    fn serve(listener: impl Listener<Addr = SocketAddr>, url: String) -> Self {
        let book = Arc::<Mutex<Book>>::default();
        let routes = Router::new().route("/hook", post(receive)).route("/hook/{*below}", post(receive));
        let routes = routes.route("/token", post(grant)).with_state(Arc::clone(&book));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, book, garbage: Garbage::default(), _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Accepts only requests with an access token, which expires after `seconds`. The token endpoint is `/token`.
    pub(crate) fn ask_for_tokens(&self, seconds: u64) {
        self.lock().tokens = Some(Tokens { seconds, ..Tokens::default() });
    }

    /// The token endpoint's address.
    pub(crate) fn token_url(&self) -> String {
        self.url.replace("/hook", "/token")
    }

    /// Sends this answer instead of a token. `None` ends the refusal.
    pub(crate) fn refuse_tokens(&self, refusal: Option<(u16, &'static str)>) {
        self.lock().tokens.as_mut().unwrap().refusal = refusal;
    }

    /// Refuses the current token from now on.
    pub(crate) fn revoke_token(&self) {
        self.lock().tokens.as_mut().unwrap().current = None;
    }

    /// The requests for a token: headers and form.
    pub(crate) fn asked_for_tokens(&self) -> Vec<(HeaderMap, String)> {
        self.lock().tokens.as_ref().unwrap().asked.clone()
    }

    /// Refuses the requests whose body is selected, with status 503. `None` ends the refusal.
    pub(crate) fn refuse(&self, refused: Option<Refused>) {
        self.lock().refused = refused.map(|refused| (503, refused));
    }

    /// Refuses the requests whose body is selected, with this status.
    pub(crate) fn refuse_with(&self, status: u16, refused: impl Fn(&str) -> bool + Send + 'static) {
        self.lock().refused = Some((status, Box::new(refused)));
    }

    /// Gives this reply to the next requests.
    pub(crate) fn reply(&self, reply: Reply, times: usize) {
        self.lock().script.extend(std::iter::repeat_n(reply, times));
    }

    /// Gives this reply to every request from now on. `None` means 204.
    pub(crate) fn always(&self, reply: Option<Reply>) {
        self.lock().always = reply;
    }

    /// Sends this text instead of each answer, without TLS. `None` ends this. The requests are recorded.
    pub(crate) fn garble(&self, garbage: Option<&'static str>) {
        *self.garbage.lock().unwrap_or_else(PoisonError::into_inner) = garbage;
    }

    /// Answers the requests that hang at this moment.
    pub(crate) fn release(&self) {
        self.lock().released.notify_waiters();
    }

    /// The number of requests, including refused requests.
    pub(crate) fn requests(&self) -> usize {
        self.lock().requests
    }

    /// The number of recorded requests.
    pub(crate) fn received(&self) -> usize {
        self.lock().accepted.len()
    }

    /// The `webhook-id` of each recorded request, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().accepted.iter().map(|post| post.id().to_owned()).collect()
    }

    /// The time of each recorded request, in order.
    pub(crate) fn arrivals(&self) -> Vec<Instant> {
        self.lock().accepted.iter().map(|post| post.at).collect()
    }

    /// The recorded requests, in order.
    pub(crate) fn posts(&self) -> Vec<Post> {
        self.lock().accepted.clone()
    }

    /// Removes the recorded requests and returns them, in order.
    pub(crate) fn drain(&self) -> Vec<Post> {
        std::mem::take(&mut self.lock().accepted)
    }

    /// The records in the recorded requests, in order.
    pub(crate) fn delivered(&self) -> Vec<Delivered> {
        self.lock().accepted.iter().flat_map(Post::delivered).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn receive(
    State(book): State<Arc<Mutex<Book>>>,
    version: Version,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap) {
    let bytes = body.len();
    let body = decompressed(&headers, &body);
    let (reply, released) = {
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        book.requests += 1;
        if let Some(tokens) = &book.tokens {
            let expected = tokens.current.as_ref().map(|token| format!("Bearer {token}"));
            let given = headers.get("authorization").and_then(|given| given.to_str().ok());
            if given.is_none() || given != expected.as_deref() {
                return (StatusCode::UNAUTHORIZED, HeaderMap::new());
            }
        }
        let refused = book.refused.as_ref().filter(|(_, refused)| refused(&body));
        let refused = refused.map(|(status, _)| Reply::Refuse(*status, None));
        let reply = refused.or_else(|| book.script.pop_front()).or(book.always);
        if !matches!(reply, Some(Reply::Refuse(..))) {
            assert!(headers.contains_key("webhook-signature") && headers.contains_key("webhook-timestamp"));
            let path = uri.path_and_query().unwrap().to_string();
            book.accepted.push(Post { version, path, headers, body, bytes, at: Instant::now() });
        }
        // Created while the book is locked, so that a release after the recording is not missed.
        (reply, book.released.clone().notified_owned())
    };
    let mut answer = HeaderMap::new();
    let status = match reply {
        Some(Reply::Refuse(status, retry_after)) => {
            if let Some(seconds) = retry_after {
                answer.insert("retry-after", seconds.into());
            }
            StatusCode::from_u16(status).unwrap()
        }
        Some(Reply::Slow(delay)) => {
            tokio::time::sleep(delay).await;
            StatusCode::NO_CONTENT
        }
        Some(Reply::Hang) => {
            released.await;
            StatusCode::NO_CONTENT
        }
        None => StatusCode::NO_CONTENT,
    };
    (status, answer)
}

fn decompressed(headers: &HeaderMap, body: &[u8]) -> String {
    let mut text = String::new();
    match headers.get("content-encoding").map(|encoding| encoding.to_str().unwrap()) {
        None => text.push_str(std::str::from_utf8(body).unwrap()),
        Some("gzip") => drop(flate2::read::GzDecoder::new(body).read_to_string(&mut text).unwrap()),
        Some("zstd") => drop(zstd::Decoder::new(body).unwrap().read_to_string(&mut text).unwrap()),
        Some(other) => panic!("{other}"),
    }
    text
}

async fn grant(State(book): State<Arc<Mutex<Book>>>, headers: HeaderMap, form: String) -> (StatusCode, String) {
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    let tokens = book.tokens.as_mut().unwrap();
    tokens.asked.push((headers, form));
    if let Some((status, answer)) = tokens.refusal {
        return (StatusCode::from_u16(status).unwrap(), answer.to_owned());
    }
    let token = format!("access-token-never-to-be-shown-{}", tokens.asked.len());
    let answer = serde_json::json!({"access_token": token, "token_type": "bearer", "expires_in": tokens.seconds});
    tokens.current = Some(token);
    (StatusCode::OK, answer.to_string())
}
