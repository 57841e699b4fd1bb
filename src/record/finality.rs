//! How final an event is: whether the chain can still drop it in a reorganization. A valid proof does not answer this.
//!
//! # Invariants
//!
//! * **Signed.** The confidence of an event is read only from content that the network signed.
//! * **Doubt counts as less.** If an event could be judged in two ways, the lower level counts.
//! * **Failures always pass,** and so do events to which finality does not apply.

use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::{Facts, Field, Record};
use proof::event::{EventType, Object};

/// The confidence that the network signs for the log of a watched contract, the lowest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, IntoStaticStr, VariantNames, Serialize,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Confidence {
    /// The block is the newest, and a reorganization can drop it.
    Latest,
    /// The chain considers the block safe, but not final.
    Safe,
    /// The block is final.
    Finalized,
}

/// The type of the events about operations.
const OPERATION: &str = "operation.status";

impl Confidence {
    /// The name that the service uses.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The level that an event has reached, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finality {
    /// An operation that is not confirmed yet. It is below every limit.
    Unconfirmed,
    /// A watcher event without a confidence, or with a confidence that this version does not know. It passes only the
    /// limit `latest`.
    Unknown,
    Reached(Confidence),
    /// Limits do not apply to the event.
    #[default]
    Exempt,
}

impl Finality {
    pub(super) fn of(record: &Record, facts: &Facts, log: LogOrigin) -> Self {
        let signed = record.confidence.map_or(Self::Unknown, Self::Reached);
        if record.kind == EventType::WatcherEvent {
            return signed;
        }
        // An event counts as an operation if the service's type or the signed type says so. A wrong type cannot bypass a limit.
        let is_operation = [Some(record.kind.as_ref()), facts.get(Field::Type)].contains(&Some(OPERATION));
        let step = is_operation.then(|| Self::of_operation(record, facts.get(Field::Status)));
        match (step, log) {
            (Some(step), LogOrigin::Watched) if step != Self::Exempt => step.min(signed),
            (Some(step), _) => step,
            (None, LogOrigin::Watched) => signed,
            (None, LogOrigin::Other) => Self::Exempt,
        }
    }

    /// The level of an operation's step. An unknown step passes every limit, because it may be a failure, unless its name begins
    /// with `confirmed`.
    fn of_operation(record: &Record, step: Option<&str>) -> Self {
        match step {
            Some("confirmed") => Self::Reached(Confidence::Finalized),
            Some("confirmed_safe") => Self::Reached(Confidence::Safe),
            Some("confirmed_latest") => Self::Reached(Confidence::Latest),
            Some("pending_signature" | "accepted" | "sending" | "sent" | "broadcasting") => Self::Unconfirmed,
            Some(unknown) if unknown.starts_with("confirmed") => Self::Reached(Confidence::Latest),
            // The network signed that the operation was confirmed, but the service's step contradicts that or is missing.
            None if record.is_verified() => Self::Reached(Confidence::Latest),
            _ => Self::Exempt,
        }
    }

    pub(super) fn reaches(self, least: Confidence) -> bool {
        self >= Self::Reached(least) || self == Self::Unknown && least == Confidence::Latest
    }
}

/// Whether the signed content is the log of a watched contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogOrigin {
    Watched,
    Other,
}

/// Returns the confidence in signed content. `None` if the content has no confidence, or a level that this version does not know.
pub(super) fn confidence(decoded: &Object<'_>) -> Option<Confidence> {
    let chain_event = decoded.get::<Object<'_>>("chain_event").ok()??;
    chain_event.get::<&str>("confidence").ok()??.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{notice, proved, proved_as};
    use crate::{Filter, UNSIGNED};

    const LIMITS: [Confidence; 3] = [Confidence::Latest, Confidence::Safe, Confidence::Finalized];

    /// The limits that the record passes.
    fn passes(record: &Record) -> Vec<&'static str> {
        let passed = LIMITS.into_iter().filter(|least| Filter::at_least(*least).takes(record.facts()));
        passed.map(Confidence::name).collect()
    }

    fn log(confidence: &str) -> String {
        format!(r#"{{"service":"dvp","name":"Transfer","chain_event":{{"confidence":{confidence}}}}}"#)
    }

    #[test]
    fn the_signed_confidence_of_a_watcher_event_is_compared() {
        for (confidence, passed) in [
            ("\"latest\"", &["latest"][..]),
            ("\"safe\"", &["latest", "safe"]),
            ("\"finalized\"", &["latest", "safe", "finalized"]),
            ("\"certain\"", &["latest"]),
            ("null", &["latest"]),
            ("7", &["latest"]),
            ("\"latest\",\"confidence\":\"finalized\"", &["latest"]),
        ] {
            // The payload and the outer levels of the signed content do not count.
            let record = proved(r#""confidence":"finalized","status":"confirmed""#, &log(confidence));
            assert_eq!(passes(&record), passed, "{confidence}");
            let least = |least| Filter::at_least(least).lacks_confidence(record.facts());
            let is_unknown = record.confidence.is_none();
            assert_eq!(LIMITS.map(least), [false, is_unknown, is_unknown], "{confidence}");
        }
        assert_eq!(passes(&proved("", r#"{"name":"Transfer","confidence":"finalized"}"#)), ["latest"]);
        assert_eq!(passes(&proved("", "no JSON")), ["latest"]);
    }

    #[test]
    fn an_operation_passes_by_its_step_and_a_failure_always() {
        let all = ["latest", "safe", "finalized"];
        let confirmed = r#"{"service":"_crec","name":"OperationConfirmed"}"#;
        for (step, passed) in [
            ("confirmed_latest", &all[..1]),
            ("confirmed_safe", &all[..2]),
            ("confirmed", &all[..]),
            ("confirmed_by_nobody", &all[..1]),
            ("sent", &all[..1]),
        ] {
            let record = proved_as("operation.status", &format!(r#""status":"{step}""#), confirmed);
            assert_eq!(passes(&record), passed, "signed as confirmed: {step}");
        }
        for step in ["pending_signature", "accepted", "sending", "sent", "broadcasting"] {
            let record = notice("operation.status", &format!(r#"{{"status":"{step}"}}"#));
            assert_eq!(passes(&record), [""; 0], "{step}");
        }
        for step in ["failed", "reverted", "cancelled", "expired", "of tomorrow"] {
            let record = notice("operation.status", &format!(r#"{{"status":"{step}"}}"#));
            assert_eq!(passes(&record), all, "{step}");
        }
        let failed = proved_as("operation.status", r#""status":"failed""#, r#"{"service":"_crec","name":"Failed"}"#);
        assert_eq!(passes(&failed), all, "a failure that is signed");
    }

    #[test]
    fn the_services_type_does_not_make_a_log_final() {
        for kind in ["operation.status", "query.status"] {
            for (confidence, passed) in [("\"latest\"", 1), ("\"safe\"", 2), ("\"finalized\"", 3), ("null", 1)] {
                let record = proved_as(kind, r#""status":"confirmed""#, &log(confidence));
                assert_eq!(passes(&record).len(), passed, "{kind} {confidence}");
            }
        }
    }

    #[test]
    fn the_signed_content_does_not_hide_a_step() {
        let query = r#"{"service":"_crec","name":"ChainQuery"}"#;
        let record = proved_as("operation.status", r#""status":"confirmed_safe""#, query);
        assert_eq!(passes(&record), ["latest", "safe"]);
        let confirmed = r#"{"service":"_crec","name":"OperationConfirmed"}"#;
        let record = proved_as("query.status", r#""status":"completed""#, confirmed);
        assert_eq!(passes(&record), ["latest"]);
    }

    #[test]
    fn other_types_pass_every_limit() {
        for kind in ["watcher.status", "wallet.status", "query.status", "comet.sighted"] {
            let record = notice(kind, r#"{"status":"accepted"}"#);
            assert_eq!((passes(&record).len(), record.facts().get(Field::Verification)), (3, Some(UNSIGNED)), "{kind}");
        }
        let query = proved_as("query.status", r#""status":"completed""#, r#"{"service":"_crec","name":"ChainQuery"}"#);
        assert_eq!(passes(&query).len(), 3);
    }
}
