//! Sample events for trying a template before real events arrive. Their records are rendered but never delivered.
//!
//! Each sample has the fields that the service documents for its kind. Every field that an event may lack is missing in at
//! least one sample.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::line::{UNSIGNED, Verification};
use crate::{ChannelRef, Lines, Record};
use proof::event::{ChannelId, Event};
use proof::verify::{Address, Hash, Proof};

const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const ADDRESS: &str = "0xca978112ca1bbdcafac231b39a23dc4da786eff8";
const HASH: &str = "0x97bb6198b18008ed8707408b39620e87ef2e76cb1e2b7787db8f54bc1bee82e7";
const CHAIN: &str = "16015286601757825753";
const SECONDS: i64 = 1_715_688_015;

pub(super) fn all() -> Vec<(&'static str, Record)> {
    let seen = json!({
        "watcher_id": ID, "chain_selector": CHAIN, "timestamp": SECONDS, "workflow_id": HASH,
        "workflow_execution_id": HASH,
    });
    let operation = |status: &str, reason: &str| {
        json!({
            "operation_id": ID, "wallet_operation_id": "1", "status": status, "status_reason": reason,
            "address": ADDRESS, "chain_selector": CHAIN, "timestamp": SECONDS, "digest": HASH,
            "transactions": [{"to": ADDRESS, "value": "0", "data": "0x"}],
        })
    };
    let query = |status: &str| json!({"query_id": ID, "status": status, "target": ADDRESS, "chain_selector": CHAIN, "timestamp": SECONDS});
    let watcher = |status: &str, reason: &str| {
        json!({
            "status": status, "status_reason": reason, "watcher_id": ID, "chain_selector": CHAIN, "timestamp": SECONDS,
            "service": "dvp", "workflow_id": HASH,
        })
    };
    let wallet = |status: &str, reason: &str| {
        json!({
            "status": status, "status_reason": reason, "wallet_id": ID, "address": ADDRESS, "chain_selector": CHAIN,
            "timestamp": SECONDS,
        })
    };
    let result = json!({
        "service": "_crec", "name": "ChainQuery", "chain_selector": CHAIN, "timestamp": "2024-05-14T12:00:15Z",
        "data": {"query_id": ID, "channel_id": ID, "query_kind": "evm_call", "result": {"raw_return_data": "0x01"}},
    });
    let read = Some(Timestamp::from_second(SECONDS + 1).unwrap_or_default());
    let verified = |name, kind, payload, signed: &str| (name, record(kind, payload, Some(signed), read));
    let notice = |name, kind, payload| (name, record(kind, payload, None, read));
    let bare = |name, kind, payload| (name, record(kind, payload, None, None));
    let confirmed = operation("confirmed", "");
    let reverted = operation("failed", "execution reverted: \"no \\ funds\"\nand nothing else");
    vec![
        verified("a verified event of a watcher", "watcher.event", seen.clone(), &signed("Transfer", "dvp")),
        verified("a verified event whose signed text is no JSON", "watcher.event", seen, "a text"),
        notice("a failed operation", "operation.status", reverted),
        verified("a confirmed operation", "operation.status", confirmed, &signed("OperationConfirmed", "_crec")),
        notice("an expired query", "query.status", query("expired")),
        verified("a completed query", "query.status", query("completed"), &result.to_string()),
        notice("a watcher that failed", "watcher.status", watcher("failed", "provisioning error")),
        notice("a watcher that is active", "watcher.status", watcher("active", "")),
        notice("a wallet that failed", "wallet.status", wallet("failed", "out of gas")),
        bare("a wallet, without an id", "wallet.status", wallet("deployed", "")),
        bare("a notice of a type that is not known yet", "new.kind", json!({"n": 1})),
    ]
}

/// The signed text of an event on the chain.
fn signed(name: &str, service: &str) -> String {
    json!({
        "name": name, "service": service, "timestamp": "2024-05-14T12:00:15Z", "chain_family": "evm",
        "chain_selector": CHAIN,
        "chain_event": {
            "chain_id": "11155111", "block_number": 7_341_902, "block_hash": HASH, "block_timestamp": SECONDS,
            "tx_hash": HASH, "address": ADDRESS, "topic_hash": HASH, "log_index": 12, "confidence": "finalized",
            "event_signature": "Transfer(address,address,uint256)",
            "params": {"from": ADDRESS, "to": ADDRESS, "value": "1500000"},
        },
        "data": {},
    })
    .to_string()
}

/// The record of an event. It is verified if it has a signed text. Without the time when it was `read`, it also has no id.
fn record(kind: &str, mut payload: Value, signed: Option<&str>, read: Option<Timestamp>) -> Record {
    let mut proofs = json!([]);
    if let Some(signed) = signed {
        proofs = json!([{"alg": "…", "ocr_report": "0x01", "ocr_context": "0x02", "signatures": ["0x03", "0x04"]}]);
        let member = if kind == "query.status" { "verifiable_result" } else { "verifiable_event" };
        payload["event_hash"] = HASH.into();
        payload[member] = STANDARD.encode(signed).into();
    }
    let mut event = json!({"headers": {"type": kind, "offset": 15_520, "proofs": proofs}, "payload": payload});
    let mut lines = Lines::default();
    if let Some(read) = read {
        event["event_id"] = "d290f1ee-6c54-4b01-90e6-d701748f0851".into();
        lines = lines.received(read);
    }
    let event = Event::parse(event.to_string().into()).expect("a sample is an event");
    let channel = ChannelRef { name: "sample".into(), id: ChannelId(Uuid::from_u128(1)) };
    if signed.is_none() {
        return Record::new(&channel, &event, &Verification::status(UNSIGNED), &mut lines);
    }
    let hash = Hash([7; 32]);
    let proof = Proof {
        digest: hash,
        signers: vec![Address([8; 20]), Address([9; 20])],
        required: 2,
        strangers: 0,
        event_hash: hash,
        workflow_owner: Address([10; 20]),
        workflow_id: hash,
        execution_id: hash,
    };
    Record::proved(&channel, &event, &proof, &mut lines)
}
