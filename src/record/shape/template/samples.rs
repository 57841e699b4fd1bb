//! Sample events for trying a template before real events arrive. Their records are rendered but never delivered.
//!
//! Each sample has the fields that the service documents for its kind. Every field that an event may lack is missing in at
//! least one sample.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::line::{UNSIGNED, VERIFIED, Verification};
use crate::{ChannelRef, Lines, Record};
use proof::event::{ChannelId, Event};
use proof::verify::{Address, Hash, Proof};

const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
const ADDRESS: &str = "0xca978112ca1bbdcafac231b39a23dc4da786eff8";
const HASH: &str = "0x97bb6198b18008ed8707408b39620e87ef2e76cb1e2b7787db8f54bc1bee82e7";
const CHAIN: &str = "16015286601757825753";
const SECONDS: i64 = 1_715_688_015;

/// The definition of a sample.
struct Sample {
    name: &'static str,
    kind: &'static str,
    is_verified: bool,
    /// Whether it has an event id and a time when it was read.
    is_complete: bool,
    payload: Value,
}

/// Returns each sample with its name.
pub(super) fn all() -> Vec<(&'static str, Record)> {
    let operation = |status: &str, reason: &str, signed: Option<&str>| {
        let mut payload = json!({
            "operation_id": ID, "wallet_operation_id": "1", "status": status, "status_reason": reason,
            "address": ADDRESS, "chain_selector": CHAIN, "timestamp": SECONDS, "digest": HASH,
            "transactions": [{"to": ADDRESS, "value": "0", "data": "0x"}],
        });
        if let Some(signed) = signed {
            payload["event_hash"] = HASH.into();
            payload["verifiable_event"] = STANDARD.encode(signed).into();
        }
        payload
    };
    let watcher_event = |signed: &str| {
        json!({
            "watcher_id": ID, "chain_selector": CHAIN, "timestamp": SECONDS, "event_hash": HASH, "workflow_id": HASH,
            "workflow_execution_id": HASH, "verifiable_event": STANDARD.encode(signed),
        })
    };
    let sample = |name, kind, is_verified, payload| Sample { name, kind, is_verified, is_complete: true, payload };
    let confirmed = signed("OperationConfirmed", "_crec");
    let result = json!({
        "service": "_crec", "name": "ChainQuery", "chain_selector": CHAIN, "timestamp": "2024-05-14T12:00:15Z",
        "data": {"query_id": ID, "channel_id": ID, "query_kind": "evm_call", "result": {"raw_return_data": "0x01"}},
    });
    let query = |status: &str| json!({"query_id": ID, "status": status, "target": ADDRESS, "chain_selector": CHAIN, "timestamp": SECONDS});
    let mut completed = query("completed");
    completed["event_hash"] = HASH.into();
    completed["verifiable_result"] = STANDARD.encode(result.to_string()).into();
    let of_watcher = |status: &str, reason: &str| {
        json!({
            "status": status, "status_reason": reason, "watcher_id": ID, "chain_selector": CHAIN, "timestamp": SECONDS,
            "service": "dvp", "workflow_id": HASH,
        })
    };
    let of_wallet = |status: &str, reason: &str| {
        json!({
            "status": status, "status_reason": reason, "wallet_id": ID, "address": ADDRESS, "chain_selector": CHAIN,
            "timestamp": SECONDS,
        })
    };
    let all = [
        sample("a verified event of a watcher", "watcher.event", true, watcher_event(&signed("Transfer", "dvp"))),
        sample("a verified event whose signed text is no JSON", "watcher.event", true, watcher_event("a text")),
        sample(
            "a failed operation",
            "operation.status",
            false,
            operation("failed", "execution reverted: \"no \\ funds\"\nand nothing else", None),
        ),
        sample("a confirmed operation", "operation.status", true, operation("confirmed", "", Some(&confirmed))),
        sample("an expired query", "query.status", false, query("expired")),
        sample("a completed query", "query.status", true, completed),
        sample("a watcher that failed", "watcher.status", false, of_watcher("failed", "provisioning error")),
        sample("a watcher that is active", "watcher.status", false, of_watcher("active", "")),
        sample("a wallet that failed", "wallet.status", false, of_wallet("failed", "out of gas")),
        Sample {
            is_complete: false,
            ..sample("a wallet, without an id", "wallet.status", false, of_wallet("deployed", ""))
        },
        Sample {
            is_complete: false,
            ..sample("a notice of a type that is not known yet", "new.kind", false, json!({"n": 1}))
        },
    ];
    all.iter().map(|sample| (sample.name, record(sample))).collect()
}

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

fn record(Sample { kind, is_verified, is_complete, payload, .. }: &Sample) -> Record {
    let proofs = json!([{"alg": "…", "ocr_report": "0x01", "ocr_context": "0x02", "signatures": ["0x03", "0x04"]}]);
    let proofs = if *is_verified { proofs } else { json!([]) };
    let mut event = json!({"headers": {"type": kind, "offset": 15_520, "proofs": proofs}, "payload": payload});
    let mut lines = Lines::default();
    if *is_complete {
        event["event_id"] = "d290f1ee-6c54-4b01-90e6-d701748f0851".into();
        lines = lines.received(Timestamp::from_second(SECONDS + 1).unwrap_or_default());
    }
    let event = Event::parse(event.to_string().into()).expect("a sample is an event");
    let channel = ChannelRef { name: "sample".into(), id: ChannelId(Uuid::from_u128(1)) };
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
    if !is_verified {
        return Record::new(&channel, &event, &Verification::status(UNSIGNED), &mut lines);
    }
    let verification = Verification { proof: Some(&proof), ..Verification::status(VERIFIED) };
    Record { digest: Some(hash), ..Record::new(&channel, &event, &verification, &mut lines) }
}
