//! The alert for an event: the name `alert` in templates.
//!
//! # Invariants
//!
//! * **An alert depends only on its event.** Severity, key and title depend on nothing else. The same event produces the
//!   same alert at each attempt and on each instance.
//! * **An alert that resolves has the same key as the alert that it ends.** The key of a status event names the subject of
//!   the status.
//! * **Bounded and printable,** like the readable line.

use minijinja::{Value, context};
use uuid::Uuid;

use super::values::Map;
use crate::shape::readable::{Readable, limited, printable, status_reason};
use crate::{Confidence, Field, Record};
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
pub(super) struct Alert {
    /// `critical`, `error`, `warning` or `info`.
    pub(super) severity: &'static str,
    /// The same for all alerts about the same subject.
    pub(super) key: String,
    /// Whether the subject has recovered, or never failed.
    pub(super) resolves: bool,
    title: String,
    reason: String,
    facts: Vec<(&'static str, String)>,
    line: String,
}

impl Alert {
    pub(super) fn of(record: &Record) -> Self {
        let (readable, facts) = (Readable::of(record), record.facts());
        let (kind, status) = (facts.get(Field::Type).unwrap_or_default(), facts.get(Field::Status));
        let (severity, resolves) = severity(kind, status.unwrap_or_default());
        Self {
            severity,
            key: key(record),
            resolves,
            title: title(record, &readable, status),
            reason: printable(&limited(status_reason(record).unwrap_or_default(), REASON_LIMIT)),
            facts: listed(record, &readable),
            line: readable.to_string(),
        }
    }

    /// The alert as templates see it.
    pub(super) fn value(&self) -> Value {
        let facts = self.facts.iter().map(|(name, value)| (Value::from(*name), Value::from(value.as_str())));
        let details: Map = facts.clone().collect();
        context! {
            severity => self.severity,
            key => self.key.as_str(),
            resolves => self.resolves,
            title => self.title.as_str(),
            reason => self.reason.as_str(),
            facts => facts.map(|(name, value)| context! { name, value }).collect::<Vec<_>>(),
            details,
            line => self.line.as_str(),
        }
    }
}

/// Returns the severity of an event, and whether the event shows that its subject has no problem. The failure of a
/// watcher is critical, because a failed watcher sends no more events. An expired operation or query is only a warning,
/// because the operation or query can be sent again.
fn severity(kind: &str, status: &str) -> (&'static str, bool) {
    match (kind, status) {
        ("watcher.status", "failed") => ("critical", false),
        ("operation.status" | "wallet.status", "failed") | ("operation.status", "reverted") => ("error", false),
        ("watcher.status", "archive_failed")
        | ("operation.status", "expired")
        | ("query.status", "failed" | "expired") => ("warning", false),
        ("watcher.status", "active" | "archived")
        | ("wallet.status", "deployed" | "archived")
        | ("operation.status", "confirmed" | "cancelled")
        | ("query.status", "completed") => ("info", true),
        _ => ("info", false),
    }
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

/// Returns the title: a status such as `operation failed`, the name of a watched event such as `dvp.Transfer`, or else
/// the type.
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
    let fact = |(name, field)| (name, facts.get(field).unwrap_or_default().to_owned());
    let subjects = [
        ("Operation", Field::OperationId),
        ("Query", Field::QueryId),
        ("Wallet", Field::WalletId),
        ("Watcher", Field::WatcherId),
    ];
    // The status of an operation already names its step.
    let confidence = record.confidence.filter(|_| facts.get(Field::Status).is_none());
    let network = record.network.or_else(|| facts.get(Field::ChainSelector)).unwrap_or_default();
    let subject = subjects.into_iter().find(|(_, field)| facts.get(*field).is_some());
    let all = [
        ("Channel", readable.channel.clone()),
        ("Event", readable.kind.clone()),
        fact(("Status", Field::Status)),
        ("Confidence", confidence.map(Confidence::name).unwrap_or_default().to_owned()),
        subject.map(fact).unwrap_or_default(),
        fact(("Service", Field::Service)),
        ("Network", network.to_owned()),
        fact(("Address", Field::Address)),
        ("Time", readable.time.clone()),
        ("Offset", readable.offset.to_string()),
        ("Proof", readable.proof.clone()),
    ];
    let facts = all.into_iter().map(|(name, value)| (name, printable(&limited(value.trim(), FACT_LIMIT))));
    facts.filter(|(_, value)| !value.is_empty()).take(FACTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{notice, proved, proved_as};

    const SIGNED: &str = r#"{"chain_selector":"16015286601757825753","chain_event":{"confidence":"safe"}}"#;

    fn fact(record: &Record, name: &str) -> Option<String> {
        Alert::of(record).facts.into_iter().find(|(fact, _)| *fact == name).map(|(_, value)| value)
    }

    #[test]
    fn the_facts_have_the_signed_confidence_and_the_name_of_the_network() {
        let event = proved(r#""watcher_id":"W","confidence":"finalized""#, SIGNED);
        assert_eq!(fact(&event, "Confidence").as_deref(), Some("safe"));
        assert_eq!(fact(&event, "Network").as_deref(), Some("Ethereum Sepolia"));
        let operation = proved_as("operation.status", r#""status":"confirmed_safe""#, SIGNED);
        assert_eq!(
            (fact(&operation, "Status").as_deref(), fact(&operation, "Confidence")),
            (Some("confirmed_safe"), None)
        );
        let unpublished = notice("wallet.status", r#"{"status":"failed","chain_selector":"7"}"#);
        assert_eq!((fact(&unpublished, "Confidence"), fact(&unpublished, "Network").as_deref()), (None, Some("7")));
    }
}
