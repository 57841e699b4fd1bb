//! Payloads: the few fields that decide what an event is, and the shapes of all that are known.

use serde::Deserialize;
use uuid::Uuid;

use super::EventType;
use super::json::{Malformed, Object, Text};

/// What the rest of the program reads of a payload.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// The text that the network signs for this kind of event (`verifiable_event` or `verifiable_result`), where it is
    /// present and not empty.
    pub signed: Option<Box<str>>,
    /// `status`, for the kinds that have one.
    pub status: Option<Box<str>>,
    /// `timestamp` in Unix seconds. Not signed.
    pub timestamp: Option<i64>,
}

/// A transaction of an operation.
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
    /// Reads the payload of an event of that kind.
    ///
    /// A kind that can be proved has every known field checked, because the reference refuses a proof over a payload
    /// whose fields have other shapes. A notice, which is never signed, is taken as it is.
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

    /// Of a notice only the time and the status are of use, and it is delivered without them too.
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
