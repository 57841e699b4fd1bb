//! Payloads: the few fields that decide what an event is, and the shapes of all that are known.

use std::borrow::Cow;

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
/// fields have other shapes. A notice that nobody signs is taken as it is.
pub(super) fn read(kind: &EventType, record: &Object<'_>) -> Result<Payload, Malformed> {
    match kind {
        EventType::WatcherEvent => watcher_event(&record.require("payload")?),
        EventType::OperationStatus => operation_status(&record.require("payload")?),
        EventType::QueryStatus => query_status(&record.require("payload")?),
        EventType::WatcherStatus | EventType::WalletStatus | EventType::Other(_) => Ok(notice(record)),
    }
}

fn watcher_event(payload: &Object<'_>) -> Result<Payload, Malformed> {
    all_text(payload, &["watcher_id", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"])?;
    Ok(Payload {
        signed: not_empty(payload.text("verifiable_event")?),
        status: None,
        timestamp: payload.get("timestamp")?,
    })
}

fn operation_status(payload: &Object<'_>) -> Result<Payload, Malformed> {
    all_text(
        payload,
        &[
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
    )?;
    payload.check::<Uuid>("operation_id")?;
    payload.check::<Vec<Transaction<'_>>>("transactions")?;
    Ok(Payload {
        signed: not_empty(payload.text("verifiable_event")?),
        status: payload.get("status")?,
        timestamp: payload.get("timestamp")?,
    })
}

fn query_status(payload: &Object<'_>) -> Result<Payload, Malformed> {
    all_text(payload, &["target", "chain_selector", "event_hash", "workflow_id", "workflow_execution_id"])?;
    payload.check::<Uuid>("query_id")?;
    Ok(Payload {
        signed: not_empty(payload.text("verifiable_result")?),
        status: payload.get("status")?,
        timestamp: payload.get("timestamp")?,
    })
}

/// Of a notice only the time and the status are of use, and it is delivered without them too.
fn notice(record: &Object<'_>) -> Payload {
    let Ok(Some(payload)) = record.get::<Object<'_>>("payload") else { return Payload::default() };
    Payload {
        signed: None,
        status: payload.get("status").ok().flatten(),
        timestamp: payload.get("timestamp").ok().flatten(),
    }
}

fn all_text(payload: &Object<'_>, names: &[&'static str]) -> Result<(), Malformed> {
    names.iter().try_for_each(|name| payload.text(name).map(drop))
}

/// An empty signed text is no signed text.
fn not_empty(text: Option<Cow<'_, str>>) -> Option<Box<str>> {
    text.filter(|text| !text.is_empty()).map(Box::from)
}
