//! The stream: how a missing stream is created, and the requirements on an existing stream.

use std::sync::atomic::Ordering;

use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;

use super::failure::{NAME_IN_USE, NO_STREAM};
use super::message::{Position, covers, meets};
use super::server::Server;
use crate::SinkError;
use crate::settings::NatsSettings;
use net::tasks::lock;

/// The maximum number of events in one batch. A server accepts 1,000 messages in a batch, and the position is one of them.
pub(super) const BATCH: usize = 999;

/// The maximum number of events in one delivery. The ledger records a delivery with one commit. The message with the position
/// lists the delivered events, so a delivery has fewer events if this message would exceed the server's limit.
pub(super) const AT_ONCE: usize = 2 * BATCH;

/// The maximum number of events in one delivery if each event is published alone. The number is low, because each event
/// takes a round trip.
const AT_ONCE_ALONE: usize = 100;

/// The oldest server that supports a condition on the last message of another subject.
const FENCED_SINCE: (u64, u64) = (2, 11);

/// The oldest server that supports atomic batches.
const BATCHES_SINCE: (u64, u64) = (2, 12);

/// A stream, as a server describes it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stream {
    config: StreamConfig,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    first_seq: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "they are the server's")]
struct StreamConfig {
    subjects: Vec<String>,
    retention: String,
    max_msg_size: i64,
    max_msgs: i64,
    max_bytes: i64,
    max_msgs_per_subject: i64,
    /// In nanoseconds.
    max_age: i64,
    discard: String,
    discard_new_per_subject: bool,
    storage: String,
    persist_mode: String,
    subject_transform: Option<Transform>,
    allow_atomic: bool,
    allow_rollup_hdrs: bool,
    allow_msg_counter: bool,
    sealed: bool,
    no_ack: bool,
    mirror: Option<Value>,
}

/// The subjects that a stream replaces when it stores a message. No source means all subjects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Transform {
    src: String,
    dest: String,
}

/// The facts about the stream that a lane needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The subject filters of the stream.
    pub(super) subjects: Vec<String>,
    /// Whether the stream accepts atomic batches.
    pub(super) batches: bool,
    /// Whether a message may replace the earlier messages on its subject.
    pub(super) rollups: bool,
    /// The largest message that the stream accepts, in bytes. `None` if the stream has no such limit.
    pub(super) max_size: Option<usize>,
    /// The size of the largest message that the server accepts, with its headers, in bytes.
    pub(super) max_payload: usize,
    /// Whether the limits of the stream delete the oldest messages. The limit for each subject does not count, because it keeps
    /// the last message of the subject.
    drops: bool,
    /// The sequence number of the first message.
    first_seq: u64,
    /// Why the stream acknowledges messages before they are on a disk.
    early_ack: Option<&'static str>,
}

impl Facts {
    /// Whether the limits of the stream have deleted messages, and may have deleted the message with this sequence number.
    pub(super) fn has_dropped(&self, sequence: u64) -> bool {
        // A stream that was just created, or created again, starts with message 1, and so has not deleted any message.
        self.drops && self.first_seq > sequence.max(1)
    }

    pub(super) fn takes(&self, subject: &str) -> bool {
        self.subjects.iter().any(|filter| covers(filter, subject))
    }

    /// Whether the stream takes a subject that this filter matches.
    pub(super) fn takes_some(&self, filter: &str) -> bool {
        self.subjects.iter().any(|subjects| meets(subjects, filter))
    }
}

impl Server {
    /// The facts about the stream. Creates a missing stream if the configuration and the caller allow it. Returns `None` if
    /// the stream is missing and the caller does not allow its creation.
    pub(super) async fn facts(&self, may_create: bool) -> Result<Option<Facts>, SinkError> {
        let (version, max_payload) = self.info().await?;
        let mut found = self.stream().await?;
        if found.is_none() && !may_create {
            return Ok(None);
        }
        if found.is_none() && self.settings.create {
            match self.ask::<Value>("STREAM.CREATE", &wanted(&self.settings, &version)).await {
                Err(failure) if failure.is(NAME_IN_USE) => {}
                made => drop(made.map_err(|failure| self.error_in("making", failure))?),
            }
            info!(stream = %self.settings.stream, "stream created");
            found = self.stream().await?;
        }
        let facts = Facts { max_payload, ..self.checked(found, &version)? };
        let most = if facts.batches { AT_ONCE } else { AT_ONCE_ALONE };
        let largest = facts.max_size.unwrap_or(usize::MAX).min(max_payload);
        self.at_once.store(most.min(Position::most_events(largest)), Ordering::Relaxed);
        Ok(Some(facts))
    }

    /// The settings and the state of the stream. `None` if the stream does not exist.
    pub(super) async fn stream(&self) -> Result<Option<Stream>, SinkError> {
        match self.ask("STREAM.INFO", &json!({})).await {
            Err(failure) if failure.is(NO_STREAM) => Ok(None),
            answer => answer.map(Some).map_err(|failure| self.error_in("reading the settings of", failure)),
        }
    }

    pub(super) fn checked(&self, found: Option<Stream>, version: &str) -> Result<Facts, SinkError> {
        let found = found.ok_or_else(|| "it is missing: create it, or set create = true".to_owned());
        let facts = found.and_then(|found| facts(found, &self.settings, version));
        *lock(&self.early_ack) = facts.as_ref().ok().and_then(|facts| facts.early_ack);
        facts.map_err(|why| SinkError::unusable(format!("using the stream {}: {why}", self.settings.stream)))
    }
}

/// The settings with which a missing stream is created.
pub(super) fn wanted(settings: &NatsSettings, version: &str) -> Value {
    let mut stream = json!({
        "name": settings.stream,
        "description": "events that channeld has verified",
        "subjects": [settings.subject.filter_of_all(), format!("{}.>", settings.positions)],
        "retention": "limits",
        "storage": "file",
        "num_replicas": settings.replicas,
        "allow_direct": true,
        "allow_rollup_hdrs": true,
    });
    if is_since(version, BATCHES_SINCE) {
        stream["allow_atomic"] = true.into();
    }
    stream
}

/// The facts about a stream that a lane needs, on a server of this version.
///
/// # Errors
/// If lanes cannot use the stream. The message says why, and how to fix the problem.
pub(super) fn facts(stream: Stream, settings: &NatsSettings, version: &str) -> Result<Facts, String> {
    let Stream { config, state } = stream;
    let drops = config.max_age > 0 || (config.discard == "old" && (config.max_msgs > 0 || config.max_bytes > 0));
    let early_ack = match (&*config.storage, &*config.persist_mode) {
        ("memory", _) => {
            Some("the stream is in the memory of the server (storage): a restart of all servers loses its events")
        }
        (_, "async") => {
            Some("the stream acknowledges events before they are in its file (persist_mode): a crash loses them")
        }
        _ => None,
    };
    let unfit = unfit_for_positions(&config, settings);
    let StreamConfig {
        subjects, retention, max_msg_size, allow_atomic, allow_rollup_hdrs, sealed, no_ack, mirror, ..
    } = config;
    let name = &settings.stream;
    let positions = format!("{}.>", settings.positions);
    if !is_since(version, FENCED_SINCE) {
        return Err(format!(
            "the server is NATS {version}, which cannot keep an instance that was overtaken from publishing: use 2.11 or \
             newer, preferably 2.12, which has atomic batches"
        ));
    }
    if mirror.is_some() || sealed || no_ack {
        return Err(format!(
            "{name} is a mirror, sealed or without acknowledgements: name a stream that accepts messages"
        ));
    }
    if retention != "limits" {
        return Err(format!(
            "the retention of {name} is {retention}, which deletes the positions of lanes: it must be limits; let a second \
             stream of that retention take its messages from this one as its source"
        ));
    }
    if !subjects.iter().any(|filter| covers(filter, &positions)) {
        let list = [&subjects[..], std::slice::from_ref(&positions)].concat().join(",");
        return Err(format!(
            "{name} does not take the subject {positions}, on which lanes store their positions: \
             nats stream edit {name} --subjects={list:?}"
        ));
    }
    if let Some(unfit) = unfit {
        return Err(format!("{name} {unfit}"));
    }
    let max_size = usize::try_from(max_msg_size).ok().filter(|size| *size > 0);
    let batches = allow_atomic && is_since(version, BATCHES_SINCE);
    let (rollups, max_payload) = (allow_rollup_hdrs, usize::MAX);
    Ok(Facts { subjects, batches, rollups, max_size, max_payload, drops, first_seq: state.first_seq, early_ack })
}

/// Why a stream that accepts messages now fails later: after the next restart, or once it has a certain number of positions.
fn unfit_for_positions(config: &StreamConfig, settings: &NatsSettings) -> Option<String> {
    let written = [settings.subject.filter_of_all(), format!("{}.>", settings.positions)];
    if let Some(Transform { src, dest }) = &config.subject_transform {
        let src = if src.is_empty() { ">" } else { src };
        if (src, dest.as_str()) != (">", ">") && written.iter().any(|subject| meets(src, subject)) {
            return Some(format!(
                "has a subject_transform from {src} to {dest}, so that lanes would not find their events and positions again: \
                 remove it, or let a second stream transform the subjects and take its messages from this one as its source"
            ));
        }
    }
    if config.allow_msg_counter {
        return Some("has allow_msg_counter, and accepts only counters: name another stream".to_owned());
    }
    let is_limited = config.discard == "new" && config.discard_new_per_subject && config.max_msgs_per_subject > 0;
    is_limited.then(|| {
        "has discard_new_per_subject, which refuses further positions of a lane: remove it, so that a new message replaces \
         the oldest one on its subject"
            .to_owned()
    })
}

/// The description of a stream that can be used.
pub(super) fn summary(facts: &Facts, settings: &NatsSettings, version: &str) -> String {
    let name = &settings.stream;
    let way = if facts.batches {
        "atomic batches"
    } else if is_since(version, BATCHES_SINCE) {
        "one message at a time, which is slow: allow it atomic batches (allow_atomic)"
    } else {
        "one message at a time, which is slow: NATS 2.12 has atomic batches"
    };
    let all = settings.subject.filter_of_all();
    let rest = format!(
        "; the stream does not take every subject that matches {all}: an event with another subject would be refused"
    );
    let rest = if facts.takes(&all) { "" } else { &rest };
    let limits = if facts.drops { "; its limits delete the oldest events" } else { "" };
    format!("the stream {name} exists, on NATS {version}; exactly once, in {way}{rest}{limits}")
}

/// Whether a version is this one or newer. A version that cannot be parsed counts as old.
fn is_since(version: &str, (major, minor): (u64, u64)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u64>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

#[cfg(test)]
mod tests;
