//! Payloads: the few fields that decide what an event is, and the shapes of all that are known.

use serde::Deserialize;
use uuid::Uuid;

use super::EventType;
use super::json::{Malformed, Object, Text};

/// What the rest of the program reads of a payload.
#[derive(Default)]
pub(super) struct Payload {
    pub(super) signed: Option<Box<str>>,
    pub(super) status: Option<Box<str>>,
    pub(super) timestamp: Option<i64>,
}

/// A transaction of an operation: only its shape is looked at.
#[derive(Deserialize)]
struct Transaction<'a> {
    #[expect(dead_code, reason = "only the shape matters")]
    #[serde(borrow)]
    to: Option<Text<'a>>,
    #[expect(dead_code, reason = "only the shape matters")]
    #[serde(borrow)]
    value: Option<Text<'a>>,
    #[expect(dead_code, reason = "only the shape matters")]
    #[serde(borrow)]
    data: Option<Text<'a>>,
}

/// Reads the payload of an event of that kind.
///
/// A kind that can be proved has every known field checked, because the reference refuses a proof over a payload whose
/// fields have other shapes. A notice, which is never signed, is taken as it is.
pub(super) fn read(kind: &EventType, record: &Object<'_>) -> Result<Payload, Malformed> {
    let (texts, signed): (&[_], _) = match kind {
        EventType::WatcherEvent => (
            &["watcher_id", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"],
            "verifiable_event",
        ),
        EventType::OperationStatus => (&OPERATION_TEXTS, "verifiable_event"),
        EventType::QueryStatus => {
            (&["target", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"], "verifiable_result")
        }
        EventType::WatcherStatus | EventType::WalletStatus | EventType::Other(_) => return Ok(notice(record)),
    };
    let payload: Object<'_> = record.require("payload")?;
    texts.iter().try_for_each(|name| payload.text(name).map(drop))?;
    let status = match kind {
        EventType::WatcherEvent => None,
        EventType::OperationStatus => {
            payload.check::<Uuid>("operation_id")?;
            payload.check::<Vec<Transaction<'_>>>("transactions")?;
            payload.get("status")?
        }
        _ => {
            payload.check::<Uuid>("query_id")?;
            payload.get("status")?
        }
    };
    let signed = payload.text(signed)?.filter(|text| !text.is_empty()).map(Box::from);
    Ok(Payload { signed, status, timestamp: payload.get("timestamp")? })
}

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

/// Of a notice only the time and the status are of use, and it is delivered without them too.
fn notice(record: &Object<'_>) -> Payload {
    let Ok(Some(payload)) = record.get::<Object<'_>>("payload") else { return Payload::default() };
    Payload {
        signed: None,
        status: payload.get("status").ok().flatten(),
        timestamp: payload.get("timestamp").ok().flatten(),
    }
}
