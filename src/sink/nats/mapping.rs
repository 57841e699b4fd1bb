//! Finds out whether the account maps the subjects of events to other subjects.
//!
//! A message with trace headers (ADR-41 of NATS) is neither delivered nor stored. The server only reports which way it would
//! take. NATS 2.11 and later support these headers, and older servers are refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{Client, HeaderMap};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::time::timeout;

use super::failure::DENIED;
use super::server::Server;
use crate::SinkError;
use net::http;
use net::tasks::lock;
use record::ChannelRef;

/// The longest wait for the server's report about a sample.
const REPORT: Duration = Duration::from_secs(1);

/// The kind of a client's connection.
const CLIENT: u64 = 0;

/// How the account treats a subject.
#[derive(Debug, PartialEq, Eq)]
enum Mapping {
    /// It is not mapped.
    None,
    /// It is mapped to this subject.
    To(String),
    /// The server did not report it in time, or this user may not publish the sample or receive the report.
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
    /// Fails if the account maps a subject of the channel's events to another one. Returns whether this is known. Each known
    /// type of event has a sample, because a mapping can be about one type.
    pub(super) async fn check_mapping(&self, channel: &ChannelRef) -> Result<bool, SinkError> {
        for subject in self.settings.subject.samples(channel) {
            if self.may_not_trace.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match self.mapping(&subject).await? {
                Mapping::None => {}
                Mapping::Unknown => return Ok(false),
                Mapping::To(other) => {
                    return Err(SinkError::unusable(format!(
                        "the account maps the subject {subject} to {other} (mappings), so that consumers and lanes would not \
                         find the events: exclude the subjects of this sink from the mappings"
                    )));
                }
            }
        }
        Ok(true)
    }

    async fn mapping(&self, subject: &str) -> Result<Mapping, SinkError> {
        let client = self.client().await?;
        let mapping = timeout(REPORT, reported(&client, subject)).await.unwrap_or(Ok(Mapping::Unknown))?;
        // The server reports the same errors for the sample and for later requests, and does not say to which one they belong.
        let trouble = lock(&self.trouble).take().unwrap_or_default();
        if !trouble.to_lowercase().contains(DENIED) {
            return Ok(mapping);
        }
        self.may_not_trace.store(true, Ordering::Relaxed);
        Ok(Mapping::Unknown)
    }
}

/// Sends a sample, and returns what the server reports about it.
async fn reported(client: &Client, subject: &str) -> Result<Mapping, SinkError> {
    let away = |error: &dyn std::error::Error| SinkError::away(http::root_cause(error));
    let inbox = client.new_inbox();
    let mut reports = client.subscribe(inbox.clone()).await.map_err(|error| away(&error))?;
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Trace-Dest", inbox);
    headers.insert("Nats-Trace-Only", "true");
    let sent = client.publish_with_headers(subject.to_owned(), headers, "check".into()).await;
    sent.map_err(|error| away(&error))?;
    while let Some(message) = reports.next().await {
        let report = serde_json::from_slice::<Report>(&message.payload).ok();
        if let Some(mapping) = report.and_then(|report| report.mapping(subject)) {
            return Ok(mapping);
        }
    }
    Ok(Mapping::Unknown)
}
