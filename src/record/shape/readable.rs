//! The readable line of an event: the format `text`, and the output of `channeld demo`.
//!
//! # Invariants
//!
//! * **One line,** no matter what an event contains: no control characters and no characters that change the text
//!   direction. Each text from outside is cut to a limit.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::facts::text;
use crate::line::{UNSIGNED, VERIFIED};
use crate::{Confidence, Field, Record, rfc3339};
use proof::event::{Object, Offset};

/// The longest type and the longest description, in UTF-16 units.
const KIND_LIMIT: usize = 64;
const WHAT_LIMIT: usize = 200;

/// The parts of an event's readable line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readable {
    /// `verified` or `unsigned`. For an event that is not delivered, a command can also show `pending` or `rejected`.
    pub verdict: Cow<'static, str>,
    /// The channel's name.
    pub channel: String,
    /// The event's offset in the channel.
    pub offset: Offset,
    /// When the event happened. Empty if the time is unknown.
    pub time: String,
    /// The event's type.
    pub kind: String,
    /// The members `service` and `name` of the signed content, joined by a dot; otherwise the status and its reason. Empty
    /// if the event has neither.
    pub what: String,
    /// The number of signatures, or a note that the event has no proof.
    pub proof: String,
    /// The signed confidence. Empty if the event has none.
    #[serde(default)]
    pub confidence: String,
}

impl Readable {
    /// Extracts the parts of a record's line.
    pub fn of(record: &Record) -> Self {
        let what = signed_name(record).or_else(|| outcome(record)).unwrap_or_default();
        let proof = record.signatures.map(|(signers, required)| format!("{signers} of {required} signatures"));
        Self {
            verdict: Cow::Borrowed(if record.is_verified() { VERIFIED } else { UNSIGNED }),
            channel: record.channel.name.to_string(),
            offset: record.offset,
            time: record.time.and_then(rfc3339).unwrap_or_default(),
            kind: printable(&limited(record.kind.as_ref(), KIND_LIMIT)),
            what: printable(&limited(&what, WHAT_LIMIT)),
            proof: proof.unwrap_or_else(|| "no proof, by its nature".to_owned()),
            confidence: record.confidence.map(Confidence::name).unwrap_or_default().to_owned(),
        }
    }
}

/// `verdict channel offset  time  type  what  signatures, confidence`.
impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verdict, channel, offset, time, kind, what, proof, confidence } = self;
        write!(f, "{verdict:<8} {channel} {offset:>5}  {time:<20}  {kind:<16}  {what:<28} {proof}")?;
        if confidence.is_empty() { Ok(()) } else { write!(f, ", {confidence}") }
    }
}

/// Returns the members `service` and `name` of the signed content, joined by a dot. `None` if it contains neither.
fn signed_name(record: &Record) -> Option<String> {
    let decoded = Object::read(record.decoded()?).ok()?;
    let parts: Vec<_> = ["service", "name"].into_iter().filter_map(|name| text(&decoded, name)).collect();
    Some(parts.join(".")).filter(|what| !what.is_empty())
}

fn outcome(record: &Record) -> Option<String> {
    let status = record.facts().get(Field::Status)?;
    Some(match status_reason(record) {
        Some(reason) => format!("{status}: {reason}"),
        None => status.to_owned(),
    })
}

/// Returns the service's reason for the status, if it gave one.
pub(super) fn status_reason(record: &Record) -> Option<&str> {
    record.facts().status_reason().filter(|reason| !reason.trim().is_empty())
}

/// Makes a text from outside safe for a line: replaces control characters and characters that change the text direction.
pub fn printable(text: &str) -> String {
    let is_unsafe = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.replace(is_unsafe, "\u{fffd}")
}

/// Cuts a text to at most `limit` UTF-16 units. The limit is in UTF-16 units because a target, however it counts characters,
/// never counts more than these. A cut text ends with `…`.
pub(super) fn limited(text: &str, limit: usize) -> String {
    if text.len() <= limit || text.encode_utf16().count() <= limit {
        return text.to_owned();
    }
    let within = |length: &mut usize, c: char| {
        *length += c.len_utf16();
        (*length < limit).then_some(c)
    };
    let mut cut: String = text.chars().scan(0, within).collect();
    if limit > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{notice, proved};

    #[test]
    fn a_text_line_shows_the_event_and_its_proof() {
        let line = |record: &Record| Readable::of(record).to_string();
        let verified = proved(r#""watcher_id":"W","timestamp":1715688015"#, r#"{"name":"Transfer","service":"dvp"}"#);
        let expected = "verified c     5  2024-05-14T12:00:15Z  watcher.event     dvp.Transfer                 ";
        assert!(line(&verified).starts_with(expected), "{}", line(&verified));
        let failed = notice("operation.status", r#"{"status":"failed","status_reason":"out of gas"}"#);
        let expected = "operation.status  failed: out of gas           no proof, by its nature";
        assert!(line(&failed).ends_with(expected), "{}", line(&failed));
        assert!(line(&notice("wallet.status", r#"{"status":"deployed","status_reason":""}"#)).contains("  deployed  "));
    }

    #[test]
    fn a_text_line_ends_with_the_signed_confidence() {
        let line = |signed| Readable::of(&proved(r#""confidence":"finalized""#, signed)).to_string();
        assert!(line(r#"{"chain_event":{"confidence":"safe"}}"#).ends_with(", safe"));
        assert!(!line(r#"{"chain_event":{}}"#).contains("finalized"));
    }

    #[test]
    fn a_name_from_the_service_is_not_treated_as_signed() {
        let record = proved(r#""service":"forged","name":"forged""#, r#"{"other":1}"#);
        assert_eq!(Readable::of(&record).what, "");
    }

    #[test]
    fn a_text_line_stays_one_short_line() {
        let reason = format!("a\\nverified c 6\\u001b[31m \\u202e{{{{ 7 }}}}\\u2028\\\"{}", "x".repeat(100_000));
        let payload = format!(r#"{{"status":"failed","status_reason":"{reason}"}}"#);
        let long = "k".repeat(10_000);
        for kind in ["operation.status", &long] {
            let line = Readable::of(&notice(kind, &payload)).to_string();
            assert!(line.chars().count() < 500, "{line}");
            assert!(!line.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c)), "{line}");
            assert!(line.contains("{{ 7 }}"), "{line}");
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_no_longer_than_its_limit() {
        assert_eq!(limited("abc", 3), "abc");
        assert_eq!(limited("abcd", 3), "ab…");
        assert_eq!(limited("😀😀😀", 6), "😀😀😀");
        assert_eq!(limited("😀😀😀", 5), "😀😀…");
        assert_eq!(limited("a😀b", 3), "a…", "no half of a character, and no text after the cut");
        assert_eq!(limited("abc", 0), "");
    }
}
