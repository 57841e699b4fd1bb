//! Payloads: the few fields that channeld uses, and the shapes of all known fields.

use serde::Deserialize;
use uuid::Uuid;

use super::EventType;
use super::json::{Malformed, Object, Text};

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
    /// For a type that can have a proof, every known field is checked, because the reference refuses a proof over a payload
    /// with fields of other shapes. A notice is never signed, so its payload is not checked.
    pub(super) fn read(kind: &EventType, record: &Object<'_>) -> Result<Self, Malformed> {
        let (texts, signed): (&[_], _) = match kind {
            EventType::WatcherEvent => (&WATCHER_TEXTS, "verifiable_event"),
            EventType::OperationStatus => (&OPERATION_TEXTS, "verifiable_event"),
            EventType::QueryStatus => (&QUERY_TEXTS, "verifiable_result"),
            EventType::WatcherStatus | EventType::WalletStatus | EventType::Other(_) => {
                return Ok(Self::notice(record));
            }
        };
        let payload: Object<'_> = record.require("payload")?;
        texts.iter().try_for_each(|name| payload.text(name).map(drop))?;
        if *kind == EventType::OperationStatus {
            payload.get::<Uuid>("operation_id")?;
            payload.get::<Vec<Transaction<'_>>>("transactions")?;
        } else if *kind == EventType::QueryStatus {
            payload.get::<Uuid>("query_id")?;
        }
        let has_status = *kind != EventType::WatcherEvent;
        Ok(Self {
            status: if has_status { payload.get("status")? } else { None },
            signed: payload.text(signed)?.filter(|text| !text.is_empty()).map(Box::from),
            timestamp: payload.get("timestamp")?,
        })
    }

    /// Reads the time and the status of a notice. Both are optional, because a notice is delivered without them too.
    fn notice(record: &Object<'_>) -> Self {
        let Ok(Some(payload)) = record.get::<Object<'_>>("payload") else { return Self::default() };
        Self {
            signed: None,
            status: payload.get("status").ok().flatten(),
            timestamp: payload.get("timestamp").ok().flatten(),
        }
    }
}

const WATCHER_TEXTS: [&str; 5] = ["watcher_id", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"];

const QUERY_TEXTS: [&str; 5] = ["target", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"];

const OPERATION_TEXTS: [&str; 10] = [
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
];
