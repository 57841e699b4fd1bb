//! A minimal client of the service, and the versions of the API that it is tested with.

use std::time::Duration;

use bytes::Bytes;
use proof::event::RawEvent;
use proof::verify::{SignerSet, Verdict, Verifier};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use simulator::{ApiVersion, Options, Simulator};

/// The time of the newest backlog event. It is fixed so that every run has the same events.
pub(crate) const ENDS_AT: i64 = 1_750_000_000;

/// The longest time that a test waits for a condition.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) key: String,
    pub(crate) channels: Vec<String>,
    pub(crate) verifier: Verifier,
}

pub(crate) struct Page {
    pub(crate) records: Vec<String>,
    pub(crate) offsets: Vec<i64>,
    pub(crate) has_more: bool,
}

impl Client {
    pub(crate) fn of(simulator: &Simulator) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let known = simulator.announcement();
        let signers = SignerSet::new(known.valid_signers.clone(), known.min_required_signatures).unwrap();
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            base: known.base_url.clone(),
            key: known.api_key.clone(),
            channels: known.channels.iter().map(ToString::to_string).collect(),
            verifier: Verifier::new(signers, known.workflow_owner),
        }
    }

    pub(crate) async fn try_get(&self, path: &str) -> reqwest::Result<Response> {
        let authorization = format!("Apikey {}", self.key);
        self.http.get(format!("{}{path}", self.base)).header("Authorization", authorization).send().await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.try_get(path).await.unwrap()
    }

    pub(crate) async fn poll(&self, query: &str) -> Page {
        page(self.get(&format!("/channels/{}/events?{query}", self.channels[0])).await).await
    }

    pub(crate) async fn search(&self, query: &str) -> Page {
        page(self.get(&format!("/channels/{}/events/search?{query}", self.channels[0])).await).await
    }

    pub(crate) async fn event(&self, id: &str) -> Response {
        self.get(&format!("/channels/{}/events/search/{id}", self.channels[0])).await
    }

    pub(crate) fn verify(&self, record: &str) -> Verdict {
        self.verifier.verify(RawEvent::locate(Bytes::from(record.to_owned())).unwrap())
    }

    /// All events, oldest first. Reads pages upwards from offset 0, which requires `Window::Oldest` and an exclusive
    /// `offset`.
    pub(crate) async fn everything(&self) -> Vec<(i64, String)> {
        let (mut events, mut offset) = (Vec::new(), 0);
        loop {
            let page = self.poll(&format!("offset={offset}")).await;
            let (offsets, has_more) = (page.offsets.clone(), page.has_more);
            events.extend(page.offsets.into_iter().zip(page.records).rev());
            offset = offsets.first().copied().unwrap_or(offset);
            if !has_more {
                return events;
            }
        }
    }
}

async fn page(response: Response) -> Page {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
        has_more: bool,
    }
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.text().await.unwrap();
    let wire: Wire<'_> = serde_json::from_str(&body).unwrap();
    let records: Vec<_> = wire.events.iter().map(|record| record.get().to_owned()).collect();
    let offsets: Vec<_> = records.iter().map(|record| json(record)["headers"]["offset"].as_i64().unwrap()).collect();
    assert!(offsets.windows(2).all(|pair| pair[0] > pair[1]), "a page is in descending order: {offsets:?}");
    Page { records, offsets, has_more: wire.has_more }
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn id_of(record: &str) -> String {
    json(record)["event_id"].as_str().unwrap().to_owned()
}

pub(crate) async fn refusal(response: Response) -> (u16, String, String) {
    let status = response.status().as_u16();
    let body: Value = json(&response.text().await.unwrap());
    assert!(body["message"].is_string(), "{body}");
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (status, text("type"), text("code"))
}

/// The options of a service without events that plays this version of the API.
pub(crate) fn playing(api_version: ApiVersion) -> Options {
    Options { api_version, ..Options::default() }
}

pub(crate) fn backlog(version: ApiVersion, events: u64) -> Options {
    Options { events, seed: 7, ends_at: Some(ENDS_AT), ..playing(version) }
}

/// Makes a test of each of these functions for each version of the API.
macro_rules! on_each_version {
    ($($test:ident),* $(,)?) => {
        mod v0_4_0 {
            $(#[tokio::test] async fn $test() { super::$test(simulator::ApiVersion::V0_4_0).await; })*
        }
        mod v0_7_0 {
            $(#[tokio::test] async fn $test() { super::$test(simulator::ApiVersion::V0_7_0).await; })*
        }
        mod v0_8_0 {
            $(#[tokio::test] async fn $test() { super::$test(simulator::ApiVersion::V0_8_0).await; })*
        }
    };
}

pub(crate) use on_each_version;
