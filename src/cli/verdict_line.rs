//! Formats events with their verdicts, for people and for programs.

use serde::Deserialize;

use proof::event::{EventId, RawEvent};
use proof::verify::{Verdict, Verifier};
use record::ChannelRef;

pub(super) use record::printable;

/// Verifies events on a blocking thread, because checking signatures takes long.
pub(super) async fn verified(verifier: &Verifier, events: Vec<RawEvent>) -> Vec<Verdict> {
    let verifier = verifier.clone();
    let verifying = tokio::task::spawn_blocking(move || verifier.verify_all(events));
    verifying.await.expect("verifying does not panic, and is never cancelled")
}

/// One line: the record as JSON, or a readable summary.
pub(super) fn formatted(json: bool, channel: &ChannelRef, verdict: &Verdict) -> String {
    if json { record::verdict_json(channel, verdict) } else { line(verdict) }
}

pub(super) fn heading() -> String {
    format!("{:>10}  {:20}  {:16}  {:20}  {:36}  NAME", "OFFSET", "TIME", "TYPE", "VERDICT", "EVENT")
}

/// `offset  time  type  verdict or reason  event id  name`, with `-` for an absent value.
pub(super) fn line(verdict: &Verdict) -> String {
    let (raw, event) = verdict.parts();
    let event = event.as_ref();
    let kind = event.map(|event| printable(event.kind.as_ref()));
    let outcome = match verdict {
        Verdict::Rejected(_, reason) => format!("rejected:{}", reason.name()),
        other => other.name().to_owned(),
    };
    let name = name(verdict).or_else(|| event.and_then(|event| event.payload.status.as_deref()).map(printable));
    format!(
        "{:>10}  {:20}  {:16}  {:20}  {:36}  {}",
        raw.offset,
        time(event.and_then(|event| event.payload.timestamp)),
        kind.as_deref().unwrap_or("-"),
        outcome,
        id(raw.id),
        name.as_deref().unwrap_or("-"),
    )
}

/// A time as text, `-` if it is unknown.
pub(super) fn time(unix_seconds: Option<i64>) -> String {
    unix_seconds.and_then(record::rfc3339).unwrap_or_else(|| "-".to_owned())
}

/// An event's id as text, `-` if it has none.
pub(super) fn id(id: Option<EventId>) -> String {
    id.map_or_else(|| "-".to_owned(), |id| id.to_string())
}

/// The name in the signed text of a verified event. `None` for any other event, because its name is not proven.
fn name(verdict: &Verdict) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let Verdict::Verified(verified) = verdict else { return None };
    let decoded = record::decode(verified.event().payload.signed.as_deref()?)?;
    let Named { name } = serde_json::from_str(decoded.get()).ok()?;
    Some(printable(&name))
}
