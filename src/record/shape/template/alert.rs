//! The alert for an event: the name `alert` in templates.
//!
//! # Invariants
//!
//! * **An alert depends only on its event.** Severity, key and title depend on nothing else. The same event produces the
//!   same alert at each attempt and on each instance.
//! * **An alert that resolves has the same key as the alert that it ends.** The key of a status event names the subject of
//!   the status.
//! * **Bounded and printable,** like the readable line.

use minijinja::Value;
use uuid::Uuid;

use super::values::Map;
use crate::shape::readable::{Readable, limited, printable, status_reason};
use crate::{Facts, Field, Record};
use proof::event::EventType;

/// The longest key that `PagerDuty` accepts, in bytes. Opsgenie accepts keys of twice this length.
const KEY_LIMIT: usize = 255;

/// If a key is too long or is not printable ASCII, a UUID in this namespace replaces its subject (RFC 9562, version 5).
const NAMESPACE: Uuid = Uuid::from_u128(0x3f1c_27d8_90aa_4c61_8e55_0b7d_6a12_c9f4);

const TITLE_LIMIT: usize = 120;
const REASON_LIMIT: usize = 1_000;
const FACT_LIMIT: usize = 300;

/// The most facts that Slack shows in a section.
const FACTS: usize = 10;

/// The alert for one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alert {
    /// `critical`, `error`, `warning` or `info`.
    pub(super) severity: &'static str,
    /// The same for all alerts about the same subject.
    pub(crate) key: String,
    /// Whether the subject has recovered, or never failed.
    pub(crate) resolves: bool,
    title: String,
    reason: String,
    facts: Vec<(&'static str, String)>,
    line: String,
}

impl Alert {
    pub(crate) fn of(record: &Record) -> Self {
        let (readable, facts) = (Readable::of(record), record.facts());
        let (kind, status) = (facts.get(Field::Type).unwrap_or_default(), facts.get(Field::Status));
        let reason = status_reason(record).unwrap_or_default();
        Self {
            severity: severity(kind, status.unwrap_or_default()),
            key: key(record),
            resolves: resolves(kind, status.unwrap_or_default()),
            title: title(record, &readable, status),
            reason: printable(&limited(&reason, REASON_LIMIT)),
            facts: listed(record, &readable),
            line: readable.to_string(),
        }
    }

    /// The alert as templates see it.
    pub(super) fn value(&self) -> Value {
        let pair = |name: &str, value: &str| {
            Map::from_iter([("name".into(), Value::from(name)), ("value".into(), value.into())])
        };
        let facts: Vec<Value> = self.facts.iter().map(|(name, value)| pair(name, value).into()).collect();
        let details: Map =
            self.facts.iter().map(|(name, value)| (Value::from(*name), Value::from(value.as_str()))).collect();
        Map::from_iter([
            ("severity".into(), Value::from(self.severity)),
            ("key".into(), self.key.as_str().into()),
            ("resolves".into(), self.resolves.into()),
            ("title".into(), self.title.as_str().into()),
            ("reason".into(), self.reason.as_str().into()),
            ("facts".into(), facts.into()),
            ("details".into(), details.into()),
            ("line".into(), self.line.as_str().into()),
        ])
        .into()
    }
}

/// The severity of an event. A failed watcher sends no more events, and without an alert nobody notices. An expired
/// operation or query can be sent again.
fn severity(kind: &str, status: &str) -> &'static str {
    match (kind, status) {
        ("watcher.status", "failed") => "critical",
        ("operation.status" | "wallet.status", "failed") => "error",
        ("watcher.status", "archive_failed")
        | ("operation.status", "expired")
        | ("query.status", "failed" | "expired") => "warning",
        _ => "info",
    }
}

/// Whether nothing is wrong with the subject after this status.
fn resolves(kind: &str, status: &str) -> bool {
    matches!(
        (kind, status),
        ("watcher.status", "active" | "archived")
            | ("wallet.status", "deployed" | "archived")
            | ("operation.status", "confirmed" | "cancelled")
            | ("query.status", "completed")
    )
}

fn key(record: &Record) -> String {
    let channel = record.channel.id;
    let is_event = EventType::from(record.facts().get(Field::Type).unwrap_or_default()) == EventType::WatcherEvent;
    // An event that a watcher saw is not a state of the watcher.
    let subject = record.facts().subject().filter(|_| !is_event).map(|subject| subject.replacen('/', ":", 1));
    let subject = subject.unwrap_or_else(|| format!("event:{}", record.key()));
    let key = format!("channeld:{channel}:{subject}");
    let is_plain = key.bytes().all(|byte| byte.is_ascii_graphic());
    if key.len() <= KEY_LIMIT && is_plain {
        return key;
    }
    format!("channeld:{channel}:{}", Uuid::new_v5(&NAMESPACE, subject.as_bytes()))
}

/// `operation failed`, `dvp.Transfer`, or the type.
fn title(record: &Record, readable: &Readable, status: Option<&str>) -> String {
    let about = match &record.kind {
        EventType::Other(_) | EventType::WatcherEvent => None,
        known => known.as_ref().split_once('.').map(|(about, _)| about),
    };
    let title = match (about, status) {
        (Some(about), Some(status)) => format!("{about} {}", status.replace('_', " ")),
        _ if record.kind == EventType::WatcherEvent && !readable.what.is_empty() => readable.what.clone(),
        _ => readable.kind.clone(),
    };
    let title = printable(&limited(title.trim(), TITLE_LIMIT));
    if title.is_empty() { "event".to_owned() } else { title }
}

fn listed(record: &Record, readable: &Readable) -> Vec<(&'static str, String)> {
    let facts = record.facts();
    let fact = |name, field| (name, facts.get(field).unwrap_or_default().to_owned());
    let all = [
        ("Channel", readable.channel.clone()),
        ("Event", readable.kind.clone()),
        fact("Status", Field::Status),
        about(facts),
        fact("Service", Field::Service),
        fact("Network", Field::ChainSelector),
        fact("Address", Field::Address),
        ("Time", readable.time.clone()),
        ("Offset", readable.offset.to_string()),
        ("Proof", readable.proof.clone()),
    ];
    let said = all.into_iter().map(|(name, value)| (name, printable(&limited(value.trim(), FACT_LIMIT))));
    said.filter(|(_, value)| !value.is_empty()).take(FACTS).collect()
}

/// Returns the name and id of the subject, according to its kind.
fn about(facts: &Facts) -> (&'static str, String) {
    let fields = [
        ("Operation", Field::OperationId),
        ("Query", Field::QueryId),
        ("Wallet", Field::WalletId),
        ("Watcher", Field::WatcherId),
    ];
    let known = fields.into_iter().find_map(|(name, field)| Some((name, facts.get(field)?.to_owned())));
    known.unwrap_or(("Watcher", String::new()))
}
