//! The stream: how it is created, and the requirements on an existing one.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::settings::NatsSettings;

/// The oldest server that supports a condition on the last message of another subject.
const FENCED_SINCE: (u64, u64) = (2, 11);

/// The oldest server that supports atomic batches.
const BATCHES_SINCE: (u64, u64) = (2, 12);

/// A stream, as a server describes it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stream {
    config: Config,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct State {
    #[serde(default)]
    first_seq: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are the server's")]
struct Config {
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    retention: String,
    #[serde(default)]
    max_msg_size: i64,
    #[serde(default)]
    max_msgs: i64,
    #[serde(default)]
    max_bytes: i64,
    /// In nanoseconds.
    #[serde(default)]
    max_age: i64,
    #[serde(default)]
    discard: String,
    #[serde(default)]
    allow_atomic: bool,
    #[serde(default)]
    allow_rollup_hdrs: bool,
    #[serde(default)]
    sealed: bool,
    #[serde(default)]
    no_ack: bool,
    #[serde(default)]
    mirror: Option<Value>,
}

/// The facts about the stream that a lane needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The subject filters of the stream.
    pub(super) subjects: Vec<String>,
    /// Whether it accepts atomic batches.
    pub(super) batches: bool,
    /// Whether a message may replace the earlier messages on its subject.
    pub(super) rollups: bool,
    /// The largest message that it accepts, in bytes. `None` if it has no such limit.
    pub(super) max_size: Option<usize>,
    /// Whether the limits of the stream delete the oldest messages, and have deleted some. The limit for each subject does
    /// not count, because it keeps the last message of the subject.
    pub(super) has_dropped: bool,
}

impl Stream {
    /// A stream that was just created, or created again, starts with message 1, and so has deleted none.
    fn has_dropped(&self) -> bool {
        let Config { max_msgs, max_bytes, max_age, discard, .. } = &self.config;
        let drops = *max_age > 0 || (discard == "old" && (*max_msgs > 0 || *max_bytes > 0));
        drops && self.state.first_seq > 1
    }
}

impl Facts {
    pub(super) fn takes(&self, subject: &str) -> bool {
        self.subjects.iter().any(|filter| covers(filter, subject))
    }
}

/// The settings with which a missing stream is created.
pub(super) fn wanted(settings: &NatsSettings, version: &str) -> Value {
    let mut stream = json!({
        "name": settings.stream,
        "description": "events that channeld has verified",
        "subjects": subjects(settings),
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

/// The subjects that a stream must accept.
fn subjects(settings: &NatsSettings) -> [String; 2] {
    [settings.subject.filter_of_all(), format!("{}.>", settings.positions)]
}

/// The facts about a stream that a lane needs, on a server of this version.
///
/// # Errors
/// If lanes cannot use the stream. The message says why, and how to fix it.
pub(super) fn facts(stream: Stream, settings: &NatsSettings, version: &str) -> Result<Facts, String> {
    let has_dropped = stream.has_dropped();
    let Config { subjects, retention, max_msg_size, allow_atomic, allow_rollup_hdrs, sealed, no_ack, mirror, .. } =
        stream.config;
    let name = &settings.stream;
    let positions = format!("{}.>", settings.positions);
    if !is_since(version, FENCED_SINCE) {
        return Err(format!(
            "the server is NATS {version}, which cannot keep an instance that was overtaken from publishing: use 2.11 or \
             newer, best 2.12, which has atomic batches"
        ));
    }
    if mirror.is_some() || sealed || no_ack {
        return Err(format!(
            "{name} is a mirror, sealed or without acknowledgements: name a stream that takes messages"
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
            "{name} does not take the subject {positions}, on which lanes keep their positions: \
             nats stream edit {name} --subjects={list:?}"
        ));
    }
    let max_size = usize::try_from(max_msg_size).ok().filter(|size| *size > 0);
    let batches = allow_atomic && is_since(version, BATCHES_SINCE);
    Ok(Facts { subjects, batches, rollups: allow_rollup_hdrs, max_size, has_dropped })
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
    let rest = if facts.takes(&all) {
        String::new()
    } else {
        format!("; it does not take every subject like {all}: an event with another one would be refused")
    };
    format!("the stream {name} is there, on NATS {version}; exactly once, in {way}{rest}")
}

/// Whether a version is this one or newer. A version that cannot be parsed counts as old.
fn is_since(version: &str, (major, minor): (u64, u64)) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u64>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

/// Whether `filter` matches every subject that `subject` matches. `subject` may have wildcards.
fn covers(filter: &str, subject: &str) -> bool {
    let (mut filters, mut subjects) = (filter.split('.'), subject.split('.'));
    loop {
        match (filters.next(), subjects.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(token)) if token != ">" => {}
            (Some(filter), Some(token)) if filter == token && token != ">" => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests;
