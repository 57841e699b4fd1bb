//! The payload of each kind of event (spec/wire.md, "Payloads").

use serde::Serialize;
use uuid::Uuid;

use super::content::{Signed, json};
use super::contracts::SERVICES;
use super::facts::ContentFacts;
use super::kind::Kind;
use proof::verify::{Hash, keccak256};

#[derive(Serialize)]
struct WatcherEvent<'a> {
    watcher_id: Uuid,
    chain_selector: &'a str,
    timestamp: i64,
    event_hash: Option<Hash>,
    verifiable_event: Option<&'a str>,
    workflow_id: Hash,
    workflow_execution_id: Hash,
}

#[derive(Serialize)]
struct OperationStatus<'a> {
    operation_id: Uuid,
    wallet_operation_id: String,
    status: Option<&'a str>,
    status_reason: &'a str,
    address: &'a str,
    chain_selector: &'a str,
    timestamp: i64,
    digest: Hash,
    transactions: [Transaction<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    event_hash: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verifiable_event: Option<&'a str>,
}

#[derive(Serialize)]
struct Transaction<'a> {
    to: &'a str,
    value: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct QueryStatus<'a> {
    query_id: Uuid,
    status: Option<&'a str>,
    target: &'a str,
    chain_selector: &'a str,
    timestamp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_hash: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verifiable_result: Option<&'a str>,
}

#[derive(Serialize)]
struct WatcherStatus<'a> {
    status: Option<&'a str>,
    status_reason: &'a str,
    watcher_id: Uuid,
    chain_selector: &'a str,
    timestamp: i64,
    service: &'a str,
    workflow_id: Hash,
}

#[derive(Serialize)]
struct WalletStatus<'a> {
    status: Option<&'a str>,
    status_reason: &'a str,
    wallet_id: Uuid,
    address: &'a str,
    chain_selector: &'a str,
    timestamp: i64,
}

#[derive(Serialize)]
struct Unknown<'a> {
    status: Option<&'a str>,
    chain_selector: &'a str,
    timestamp: i64,
    verdicts: [u128; 2],
}

/// Returns an event's payload as JSON, with its signed text if it has one.
pub(crate) fn of(facts: &ContentFacts<'_>, signed: Option<&Signed>) -> String {
    match facts.kind {
        Kind::WatcherEvent => watcher_event(facts, signed),
        Kind::OperationConfirmed | Kind::OperationAccepted | Kind::OperationFailed | Kind::OperationReverted => {
            operation_status(facts, signed)
        }
        Kind::QueryCompleted | Kind::QueryFailed | Kind::QueryNotSent | Kind::QueryAccepted => {
            query_status(facts, signed)
        }
        Kind::WatcherStatus => watcher_status(facts),
        Kind::WalletStatus => wallet_status(facts),
        Kind::Unknown => unknown(facts),
    }
}

fn watcher_event(facts: &ContentFacts<'_>, signed: Option<&Signed>) -> String {
    json(&WatcherEvent {
        watcher_id: facts.watcher.id,
        chain_selector: facts.chain().selector,
        timestamp: facts.timestamp,
        event_hash: signed.map(|signed| signed.hash),
        verifiable_event: signed.map(|signed| &*signed.text),
        workflow_id: Hash(facts.workflow_id),
        workflow_execution_id: Hash(facts.execution_id),
    })
}

fn operation_status(facts: &ContentFacts<'_>, signed: Option<&Signed>) -> String {
    json(&OperationStatus {
        operation_id: facts.operation_id,
        wallet_operation_id: facts.wallet_operation_id(),
        status: facts.kind.status(),
        status_reason: facts.kind.status_reason(),
        address: &facts.wallet.address,
        chain_selector: facts.chain().selector,
        timestamp: facts.timestamp,
        digest: keccak256([&facts.operation_id.as_bytes()[..]]),
        transactions: [Transaction { to: &facts.watcher.address, value: "0", data: "0x" }],
        event_hash: signed.map(|signed| signed.hash),
        verifiable_event: signed.map(|signed| &*signed.text),
    })
}

fn query_status(facts: &ContentFacts<'_>, signed: Option<&Signed>) -> String {
    json(&QueryStatus {
        query_id: facts.query_id,
        status: facts.kind.status(),
        target: &facts.watcher.address,
        chain_selector: facts.chain().selector,
        timestamp: facts.timestamp,
        event_hash: signed.map(|signed| signed.hash),
        verifiable_result: signed.map(|signed| &*signed.text),
    })
}

fn watcher_status(facts: &ContentFacts<'_>) -> String {
    json(&WatcherStatus {
        status: facts.kind.status(),
        status_reason: "",
        watcher_id: facts.watcher.id,
        chain_selector: facts.chain().selector,
        timestamp: facts.timestamp,
        service: SERVICES[facts.watcher.service].name,
        workflow_id: Hash(facts.workflow_id),
    })
}

fn wallet_status(facts: &ContentFacts<'_>) -> String {
    json(&WalletStatus {
        status: facts.kind.status(),
        status_reason: "",
        wallet_id: facts.wallet.id,
        address: &facts.wallet.address,
        chain_selector: facts.chain().selector,
        timestamp: facts.timestamp,
    })
}

/// Includes numbers of more than 64 bits, which clients must pass through unchanged.
fn unknown(facts: &ContentFacts<'_>) -> String {
    json(&Unknown {
        status: facts.kind.status(),
        chain_selector: facts.chain().selector,
        timestamp: facts.timestamp,
        verdicts: [u128::MAX, 1],
    })
}
