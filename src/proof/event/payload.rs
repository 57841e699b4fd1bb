//! Payloads: the few fields that channeld uses, and the shapes of all known fields.

use serde::Deserialize;
use uuid::Uuid;

use super::EventType;
use super::json::{Malformed, Object, Text};
use super::unknown::{UnknownPart, UnknownValues};

/// The fields of a payload that the rest of the program uses.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// The text that the network signs for this type of event: `verifiable_event` or `verifiable_result`. `None` if it is
    /// absent or empty.
    pub signed: Option<Box<str>>,
    /// `status`, for the types that have one.
    pub status: Option<Box<str>>,
    /// `timestamp` in Unix seconds. Not signed.
    pub timestamp: Option<i64>,
    /// `chain_selector`. Not signed.
    pub chain_selector: Option<Box<str>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only the shape matters")]
struct Transaction<'a> {
    #[serde(borrow)]
    to: Option<Text<'a>>,
    #[serde(borrow)]
    value: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
}

impl Payload {
    /// Reads the payload of an event of this type.
    ///
    /// For a type that can have a proof, every known field is checked, because the service's reference verifier refuses a proof
    /// if a known field of the payload has another shape. A notice is never signed, so its payload is not checked.
    pub(super) fn read(kind: &EventType, record: &Object<'_>, unknown: &mut UnknownValues) -> Result<Self, Malformed> {
        let known = KnownPayload::of(kind);
        let Some((known, signed)) = known.and_then(|known| Some((known, known.signed?))) else {
            return Ok(Self::notice(record, known, unknown));
        };
        let payload: Object<'_> = record.require("payload")?;
        unknown.add_members(UnknownPart::PayloadMember, &payload, |name| known.has(name));
        known.texts.iter().try_for_each(|name| payload.text(name).map(drop))?;
        if *kind == EventType::OperationStatus {
            payload.get::<Uuid>("operation_id")?;
            payload.get::<Vec<Transaction<'_>>>("transactions")?;
        } else if *kind == EventType::QueryStatus {
            payload.get::<Uuid>("query_id")?;
        }
        Ok(Self {
            status: if known.statuses.is_some() { payload.get("status")? } else { None },
            signed: payload.text(signed)?.filter(|text| !text.is_empty()).map(Box::from),
            timestamp: payload.get("timestamp")?,
            chain_selector: payload.text("chain_selector")?.map(Box::from),
        })
    }

    /// Reads the time and the status of a notice. Both are optional, because a notice is delivered without them too.
    fn notice(record: &Object<'_>, known: Option<&KnownPayload>, unknown: &mut UnknownValues) -> Self {
        let Ok(Some(payload)) = record.get::<Object<'_>>("payload") else { return Self::default() };
        if let Some(known) = known {
            unknown.add_members(UnknownPart::PayloadMember, &payload, |name| known.has(name));
        }
        Self {
            signed: None,
            status: payload.get("status").ok().flatten(),
            timestamp: payload.get("timestamp").ok().flatten(),
            chain_selector: payload.text("chain_selector").ok().flatten().map(Box::from),
        }
    }
}

/// The known members of the payload of a type, and the known statuses. Every known name is in one of the lists.
pub(super) struct KnownPayload {
    /// The members that must be text if the type can have a proof.
    texts: &'static [&'static str],
    /// The other members, without `signed`.
    others: &'static [&'static str],
    /// The member with the signed text. `None` for a type that never has a proof.
    signed: Option<&'static str>,
    /// The values of `status`. `None` for a type without statuses.
    statuses: Option<&'static [&'static str]>,
}

impl KnownPayload {
    /// Returns `None` for an unknown type.
    pub(super) fn of(kind: &EventType) -> Option<&'static Self> {
        Some(match kind {
            EventType::WatcherEvent => &Self {
                texts: &["watcher_id", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"],
                others: &["timestamp"],
                signed: Some("verifiable_event"),
                statuses: None,
            },
            EventType::QueryStatus => &Self {
                texts: &["target", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"],
                others: &["query_id", "status", "timestamp"],
                signed: Some("verifiable_result"),
                statuses: Some(&["accepted", "sending", "sent", "completed", "failed", "expired"]),
            },
            EventType::OperationStatus => &Self {
                texts: &[
                    "status_reason",
                    "wallet_operation_id",
                    "address",
                    "chain_selector",
                    "digest",
                    "event_hash",
                    "operation_writer_workflow_id",
                    "operation_writer_workflow_execution_id",
                    "operation_status_workflow_id",
                    "operation_status_workflow_execution_id",
                ],
                others: &["operation_id", "status", "timestamp", "transactions"],
                signed: Some("verifiable_event"),
                statuses: Some(&[
                    "pending_signature",
                    "accepted",
                    "sending",
                    "sent",
                    "broadcasting",
                    "confirmed_latest",
                    "confirmed_safe",
                    "confirmed",
                    "failed",
                    "reverted",
                    "cancelled",
                    "expired",
                ]),
            },
            EventType::WatcherStatus => &Self {
                texts: &[],
                others: &[
                    "status",
                    "status_reason",
                    "watcher_id",
                    "chain_selector",
                    "timestamp",
                    "service",
                    "workflow_id",
                ],
                signed: None,
                statuses: Some(&["pending", "active", "failed", "archiving", "archived", "archive_failed"]),
            },
            EventType::WalletStatus => &Self {
                texts: &[],
                others: &["status", "status_reason", "wallet_id", "address", "chain_selector", "timestamp"],
                signed: None,
                statuses: Some(&["pending", "deploying", "deployed", "failed", "archived"]),
            },
            EventType::Other(_) => return None,
        })
    }

    fn has(&self, name: &str) -> bool {
        self.texts.contains(&name) || self.others.contains(&name) || self.signed == Some(name)
    }

    pub(super) fn knows_status(&self, status: &str) -> bool {
        self.statuses.is_none_or(|known| known.contains(&status))
    }
}
