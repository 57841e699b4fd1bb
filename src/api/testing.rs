//! A local server whose answers a test defines. It records the requests.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinHandle};
use url::Url;

use crate::{AccountName, Client, Settings};
use net::secret::Secret;
use net::tasks::lock;

/// The key that [`Scripted::client`] sends.
pub const KEY: &str = "k3y-secret";

/// A request: its path with the query, and its headers.
pub type RecordedRequest = (String, axum::http::HeaderMap);

/// The server. It stops when this is dropped.
pub struct Scripted {
    /// Its address, which ends in `/v1`.
    pub base_url: Url,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
    task: AbortHandle,
}

impl Scripted {
    /// Answers each request with the result of `answer`, which receives the path with the query.
    pub async fn start(answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> Self {
        let (listener, base_url) = listen().await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let app = Router::new().fallback(move |request: Request| {
            let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let answer = answer(&path);
            lock(&seen).push((path, request.headers().clone()));
            async { answer }
        });
        let task = tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
        Self { base_url, asked, task: task.abort_handle() }
    }

    /// Answers every request with these bytes and closes the connection.
    pub async fn raw(bytes: &'static [u8]) -> Self {
        let (listener, base_url) = listen().await;
        let task: JoinHandle<()> = tokio::spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let _ = connection.read(&mut [0; 4096]).await;
                let _ = connection.write_all(bytes).await;
            }
        });
        Self { base_url, asked: Arc::default(), task: task.abort_handle() }
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        Client::new(self.settings()).unwrap()
    }

    /// A client, and the server, which the caller must keep alive.
    pub fn client_and_server(self) -> (Client, Self) {
        (self.client(), self)
    }

    /// The settings of [`client`](Self::client).
    pub fn settings(&self) -> Settings {
        Settings {
            account: AccountName::default(),
            base_url: self.base_url.clone(),
            api_keys: vec![Secret::new(KEY)],
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// The received requests, in order.
    pub fn asked(&self) -> Vec<RecordedRequest> {
        lock(&self.asked).clone()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen() -> (TcpListener, Url) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap()).parse().unwrap();
    (listener, base_url)
}
