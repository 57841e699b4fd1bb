//! Checks without effects: the checks of `check --connect`, and whether the account maps the subjects of events to other subjects.
//!
//! A message with trace headers (ADR-41 of NATS) is neither delivered nor stored. The server only reports which way it would
//! take. NATS 2.11 and later support these headers, and older servers are refused.

use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM};
use async_nats::{Client, HeaderMap, Request};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout;
use uuid::Uuid;

use super::failure::{DENIED, WRONG_SEQUENCE, WRONG_SEQUENCE_UNNUMBERED};
use super::server::Server;
use super::stream::summary;
use crate::SinkError;
use net::http;
use net::tasks::lock;
use proof::event::ChannelId;
use record::ChannelRef;

/// The longest wait for the sample that the server sends back. The server sends it before it answers the publisher.
const ECHO: Duration = Duration::from_secs(1);

/// The longest wait for the names of other streams.
const LISTING: Duration = Duration::from_secs(2);

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
    kind: Option<u64>,
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
    pub(super) async fn probe(&self) -> Result<String, SinkError> {
        let (version, _) = self.info().await?;
        let found = self.stream().await?;
        if found.is_none() && self.settings.create {
            self.can_be_created().await?;
            let name = &self.settings.stream;
            return Ok(format!(
                "NATS {version} is reachable; the stream {name} will be created: it has no limits until you set some"
            ));
        }
        let said = summary(&self.checked(found, &version)?, &self.settings, &version) + self.try_to_publish().await?;
        let is_known = self.check_mapping(&ChannelRef { name: "check".into(), id: ChannelId::default() }).await?;
        let note = "; not checked: whether the account maps the subjects of events to others, because the server does not trace \
                    messages for this user";
        Ok(if is_known { said } else { said + note })
    }

    /// Checks the reasons for which a server refuses to create the stream, as far as the server tells them.
    async fn can_be_created(&self) -> Result<(), SinkError> {
        #[derive(Deserialize)]
        struct Names {
            streams: Option<Vec<String>>,
        }
        let (settings, name) = (&self.settings, &self.settings.stream);
        let is_alone =
            self.client().await?.try_server_info().is_some_and(|info| info.jetstream && info.cluster.is_none());
        if is_alone && settings.replicas > 1 {
            let replicas = settings.replicas;
            return Err(SinkError::unusable(format!(
                "the stream {name} cannot have {replicas} replicas, because the server is not in a cluster: set replicas = 1"
            )));
        }
        for subject in [settings.subject.filter_of_all(), format!("{}.>", settings.positions)] {
            let request = Request::new().payload(json!({"subject": subject}).to_string().into());
            // The user may lack the right to list streams, which the daemon does not need. The server then does not answer.
            let names = timeout(LISTING, self.request::<Names>("$JS.API.STREAM.NAMES".to_owned(), request)).await;
            if let Some(other) = names.ok().and_then(|names| names.ok()?.streams?.into_iter().next()) {
                return Err(SinkError::unusable(format!(
                    "the stream {name} cannot be created, because the stream {other} takes the subject {subject}: name that \
                     stream, or choose another subject and another positions subject"
                )));
            }
        }
        Ok(())
    }

    /// Publishes a sample as a position. The server must refuse it, because no subject has the last message that the sample
    /// expects. The sample shows whether this user may publish, and whether the account maps the subject to another one.
    /// Returns a note for the operator.
    async fn try_to_publish(&self) -> Result<&'static str, SinkError> {
        let (stream, positions) = (&self.settings.stream, &self.settings.positions);
        let subject = format!("{positions}.{}.check-{}", Uuid::nil(), Uuid::new_v4().simple());
        let client = self.client().await?;
        let subscribed = client.subscribe(subject.clone()).await;
        let mut echoes = subscribed.map_err(|error| SinkError::away(http::root_cause(&error)))?;
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, &**stream);
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, i64::MAX.to_string());
        let sample = json!({"test": true, "of": "channeld check"}).to_string();
        match self.publish(subject, headers, sample.into()).await {
            Err(failure) if failure.is(WRONG_SEQUENCE) || failure.is(WRONG_SEQUENCE_UNNUMBERED) => {}
            Err(failure) => return Err(self.error_in("publishing to", failure)),
            Ok(_) => {
                return Err(SinkError::unusable(format!(
                    "the stream {stream} ignores the condition of a message, so that two instances could publish: use NATS 2.11 or newer"
                )));
            }
        }
        if timeout(ECHO, echoes.next()).await.is_ok_and(|echo| echo.is_some()) {
            return Ok("");
        }
        let trouble = lock(&self.trouble).take().unwrap_or_default().to_lowercase();
        if trouble.contains("permissions violation for subscription") {
            return Ok(
                "; not checked: whether the account maps the subjects to others, because this user may not subscribe",
            );
        }
        Err(SinkError::unusable(format!(
            "the account maps the subject {positions}.> to another subject (mappings), so that lanes would not find their positions \
             again: exclude this subject from the mappings"
        )))
    }

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
