//! Finds out whether the account maps the subjects of events to other subjects.
//!
//! A message with trace headers (ADR-41 of NATS) is neither delivered nor stored. The server only reports which way it would
//! take. NATS 2.11 and later support these headers, and older servers are refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::HeaderMap;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::time::timeout;

use super::server::Server;
use crate::SinkError;
use net::http;
use net::tasks::lock;

/// The longest wait for the server's report.
const REPORT: Duration = Duration::from_secs(1);

/// The kind of a client's connection.
const CLIENT: u64 = 0;

/// How the account treats a subject.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    /// It is not mapped.
    None,
    /// It is mapped to this subject.
    To(String),
    /// The server did not report it. The user may not be allowed to publish to the subject of the report.
    Unknown,
}

/// A report about a message.
#[derive(Deserialize)]
struct Report {
    events: Vec<Event>,
}

/// A step of a message through the server.
#[derive(Deserialize)]
struct Event {
    /// `in` for the arrival of the message, `sm` for a mapping of its subject.
    #[serde(rename = "type")]
    step: String,
    /// The kind of connection on which the message arrived.
    #[serde(default)]
    kind: Option<u64>,
    #[serde(default)]
    to: Option<String>,
}

impl Report {
    /// `None` if another server of the cluster reports: only the first server maps the subject.
    fn mapping(self, subject: &str) -> Option<Mapping> {
        self.events.iter().find(|event| event.step == "in" && event.kind == Some(CLIENT))?;
        let mapped = self.events.into_iter().find(|event| event.step == "sm").and_then(|event| event.to);
        Some(mapped.filter(|to| to != subject).map_or(Mapping::None, Mapping::To))
    }
}

impl Server {
    /// Fails if the account maps the subjects that this filter matches to others. Returns whether this is known.
    pub(super) async fn check_mapping(&self, filter: &str) -> Result<bool, SinkError> {
        if self.is_silent.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.mapping(filter.replace(['*', '>'], "check")).await? {
            Mapping::None => Ok(true),
            Mapping::Unknown => {
                self.is_silent.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Mapping::To(other) => Err(SinkError::unusable(format!(
                "the account maps the subject {filter} to another subject, such as {other} (mappings), so that consumers and \
                 lanes would not find the events: exclude this subject from the mappings"
            ))),
        }
    }

    async fn mapping(&self, subject: String) -> Result<Mapping, SinkError> {
        let away = |error: &dyn std::error::Error| SinkError::away(http::root_cause(error));
        let client = self.client().await?;
        let inbox = client.new_inbox();
        let mut reports = client.subscribe(inbox.clone()).await.map_err(|error| away(&error))?;
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Trace-Dest", inbox);
        headers.insert("Nats-Trace-Only", "true");
        let sent = client.publish_with_headers(subject.clone(), headers, "check".into()).await;
        sent.map_err(|error| away(&error))?;
        let reported = async {
            while let Some(message) = reports.next().await {
                let report = serde_json::from_slice::<Report>(&message.payload).ok();
                if let Some(mapping) = report.and_then(|report| report.mapping(&subject)) {
                    return mapping;
                }
            }
            Mapping::Unknown
        };
        let mapping = timeout(REPORT, reported).await.unwrap_or(Mapping::Unknown);
        if mapping == Mapping::Unknown {
            // A missing permission for the sample says nothing about later requests.
            lock(&self.trouble).take();
        }
        Ok(mapping)
    }
}
