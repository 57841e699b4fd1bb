//! Requests to the admin listener, as probes and people send them.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::support::{Daemon, LONGEST_WAIT, LOOK_AGAIN, Setup};

/// The admin listener of a daemon.
pub(crate) struct Admin {
    pub(crate) address: SocketAddr,
    http: reqwest::Client,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.kind, "application/json", "{self:?}");
        serde_json::from_str(&self.text).unwrap()
    }
}

impl Setup {
    /// Adds an admin listener on a port that the system chooses.
    pub(crate) fn with_admin(self) -> Self {
        self.with("admin.listen", "127.0.0.1:0")
    }
}

impl Admin {
    /// The listener of a daemon. Waits until it listens.
    pub(crate) async fn of(daemon: &mut Daemon) -> Self {
        let listens = "health, metrics and status are served";
        daemon.until_logged(listens).await;
        let address = daemon.log().lines(listens)[0]["address"].as_str().unwrap().parse().unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { address, http: reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap() }
    }

    /// Connects this number of clients, which never finish their request.
    pub(crate) fn idle_clients(&self, number: usize) -> Vec<TcpStream> {
        let client = |_| {
            let mut client = TcpStream::connect(self.address).unwrap();
            client.write_all(b"GET /livez HT").unwrap();
            client
        };
        (0..number).map(client).collect()
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.ask(Method::GET, path, "*/*").await
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, accept: &str) -> Answered {
        self.try_ask(method, path, accept).await.unwrap()
    }

    async fn try_ask(&self, method: Method, path: &str, accept: &str) -> reqwest::Result<Answered> {
        let request = self.http.request(method, format!("http://{}{path}", self.address)).header("Accept", accept);
        let answer = request.send().await?;
        let kind = answer.headers().get("Content-Type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        Ok(Answered { status: answer.status(), kind, text: answer.text().await? })
    }

    /// Repeats a request until `holds` accepts the answer. Panics if the daemon ends first.
    pub(crate) async fn until(
        &self,
        daemon: &mut Daemon,
        path: &str,
        what: &str,
        holds: impl Fn(&Answered) -> bool,
    ) -> Answered {
        let asked = Instant::now();
        loop {
            let answer = self.try_ask(Method::GET, path, "*/*").await;
            let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}\n{}", daemon.log().tail()));
            if holds(&answer) {
                return answer;
            }
            assert!(asked.elapsed() < LONGEST_WAIT, "not within {LONGEST_WAIT:?}: {what}: {answer:?}");
            daemon.until("it runs", |_| true).await;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The value of a sample, by its name and labels as the scrape contains them.
    pub(crate) async fn sample(&self, sample: &str) -> Option<f64> {
        let scrape = self.get("/metrics").await;
        assert_eq!(scrape.status, 200, "{scrape:?}");
        value(&scrape.text, sample)
    }
}

/// The value of a sample in a scrape.
pub(crate) fn value(scrape: &str, sample: &str) -> Option<f64> {
    scrape.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')).map(|value| value.parse().unwrap())
}
