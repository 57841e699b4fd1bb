//! A webhook endpoint that writes down what it is told, and refuses as it is told.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::Delivered;

/// What a request is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// This status, with this `Retry-After`. What is refused is not written down.
    Refuse(u16, Option<u64>),
    /// 204, so much later. Written down at once.
    Slow(Duration),
    /// Nothing, ever. Written down at once.
    Hang,
}

/// A running endpoint.
pub(crate) struct Receiver {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct Book {
    script: VecDeque<Reply>,
    always: Option<Reply>,
    poison: Option<String>,
    requests: usize,
    accepted: Vec<(String, String)>,
    accepted_at: Vec<Instant>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let book = Arc::<Mutex<Book>>::default();
        let routes = Router::new().route("/hook", post(receive)).with_state(Arc::clone(&book));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, book, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Replies so to the next requests.
    pub(crate) fn reply(&self, reply: Reply, times: usize) {
        self.lock().script.extend(std::iter::repeat_n(reply, times));
    }

    /// Replies so to every request from now on; `None` is 204.
    pub(crate) fn always(&self, reply: Option<Reply>) {
        self.lock().always = reply;
    }

    /// Refuses the event of that id from now on, with 422.
    pub(crate) fn poison(&self, id: &str) {
        self.lock().poison = Some(id.to_owned());
    }

    /// How many requests came.
    pub(crate) fn requests(&self) -> usize {
        self.lock().requests
    }

    /// How many requests were written down.
    pub(crate) fn received(&self) -> usize {
        self.lock().accepted.len()
    }

    /// The `webhook-id` of each, in their order.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.lock().accepted.iter().map(|(id, _)| id.clone()).collect()
    }

    /// When each came, in their order.
    pub(crate) fn arrivals(&self) -> Vec<Instant> {
        self.lock().accepted_at.clone()
    }

    /// The record in each, in their order.
    pub(crate) fn delivered(&self) -> Vec<Delivered> {
        self.lock().accepted.iter().map(|(_, body)| Delivered::parse(body)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn receive(State(book): State<Arc<Mutex<Book>>>, headers: HeaderMap, body: String) -> (StatusCode, HeaderMap) {
    let reply = {
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        book.requests += 1;
        let id = headers["webhook-id"].to_str().unwrap().to_owned();
        let poisoned = book.poison.as_ref() == Some(&id);
        let reply = if poisoned { Some(Reply::Refuse(422, None)) } else { book.script.pop_front().or(book.always) };
        if !matches!(reply, Some(Reply::Refuse(..))) {
            assert!(headers.contains_key("webhook-signature") && headers.contains_key("webhook-timestamp"));
            book.accepted.push((id, body));
            book.accepted_at.push(Instant::now());
        }
        reply
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
        Some(Reply::Hang) => std::future::pending().await,
        None => StatusCode::NO_CONTENT,
    };
    (status, answer)
}
