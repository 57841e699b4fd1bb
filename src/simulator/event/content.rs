//! The signed content of events: the logs of watched contracts and the results of chain queries.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::Rng;
use rand::rngs::StdRng;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::contracts::{OPERATION_CONFIRMED, OPERATION_REVERTED, SERVICES};
use super::facts::ContentFacts;
use super::kind::Kind;
use super::padding::Padding;
use crate::random::hex_of;
use proof::event::ChannelId;
use proof::verify::{Hash, event_hash, keccak256};

/// The name of the service itself in signed content.
const BACKEND: &str = "_crec";

/// The JSON in `verifiable_event`.
#[derive(Serialize)]
struct VerifiableEvent<'a> {
    chain_family: &'static str,
    chain_selector: &'a str,
    chain_event: ChainEvent<'a>,
    name: &'static str,
    service: &'static str,
    timestamp: String,
}

#[derive(Serialize)]
struct ChainEvent<'a> {
    chain_id: &'a str,
    block_number: u64,
    block_hash: String,
    block_timestamp: i64,
    tx_hash: String,
    address: &'a str,
    topic_hash: String,
    event_signature: String,
    log_index: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<&'static str>,
    params: Params,
}

/// Decoded log arguments in the order of the contract's declaration.
struct Params(Vec<(&'static str, String)>);

impl Serialize for Params {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The JSON in `verifiable_result`.
#[derive(Serialize)]
struct VerifiableResult<'a> {
    service: &'static str,
    name: &'static str,
    chain_selector: &'a str,
    timestamp: String,
    data: QueryData<'a>,
}

#[derive(Serialize)]
struct QueryData<'a> {
    query_id: Uuid,
    channel_id: ChannelId,
    query_kind: &'static str,
    target: QueryTarget<'a>,
    block_selection: BlockSelection,
    #[serde(flatten)]
    outcome: QueryOutcome,
}

#[derive(Serialize)]
struct QueryTarget<'a> {
    contract_address: &'a str,
    from_address: &'a str,
    call_data: String,
}

#[derive(Serialize)]
struct BlockSelection {
    requested: RequestedBlock,
    resolved: u64,
}

#[derive(Serialize)]
struct RequestedBlock {
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum QueryOutcome {
    Result { raw_return_data: String },
    Error { message: &'static str },
}

/// Returns the log of a watched contract, or of the wallet of a confirmed or reverted operation. `confidence` is the confidence
/// of the watcher; `None` if logs have none.
pub(crate) fn verifiable_event(
    facts: &ContentFacts<'_>,
    has_confidence: bool,
    confidence: Option<&'static str>,
    rng: &mut StdRng,
) -> String {
    let (emitted, service, address, confidence) = match facts.kind {
        Kind::OperationConfirmed => (&OPERATION_CONFIRMED, BACKEND, &facts.wallet.address, Some("finalized")),
        Kind::OperationReverted => (&OPERATION_REVERTED, BACKEND, &facts.wallet.address, Some("finalized")),
        _ => (facts.emitted, SERVICES[facts.watcher.service].name, &facts.watcher.address, confidence),
    };
    let event_signature = emitted.signature();
    json(&VerifiableEvent {
        chain_family: "evm",
        chain_selector: facts.chain().selector,
        chain_event: ChainEvent {
            chain_id: facts.chain().id,
            block_number: rng.random_range(8_000_000..30_000_000),
            block_hash: hex_of::<32>(rng),
            block_timestamp: facts.timestamp,
            tx_hash: hex_of::<32>(rng),
            address,
            topic_hash: keccak256([event_signature.as_bytes()]).to_string(),
            event_signature,
            log_index: rng.random_range(0..400),
            confidence: confidence.filter(|_| has_confidence),
            params: Params(emitted.arguments(facts.timestamp, rng)),
        },
        name: emitted.name,
        service,
        timestamp: rfc3339(facts.timestamp),
    })
}

/// Returns the result of a chain query.
pub(crate) fn verifiable_result(facts: &ContentFacts<'_>, rng: &mut StdRng) -> String {
    json(&VerifiableResult {
        service: BACKEND,
        name: "ChainQuery",
        chain_selector: facts.watcher.chain.selector,
        timestamp: rfc3339(facts.timestamp),
        data: QueryData {
            query_id: facts.query_id,
            channel_id: facts.channel,
            query_kind: "evm_call",
            target: QueryTarget {
                contract_address: &facts.watcher.address,
                from_address: &facts.wallet.address,
                call_data: hex_of::<36>(rng),
            },
            block_selection: BlockSelection {
                requested: RequestedBlock { r#type: "finalized" },
                resolved: rng.random_range(8_000_000..30_000_000),
            },
            outcome: match rng.random_range(0..8) {
                _ if facts.kind == Kind::QueryFailed => QueryOutcome::Error { message: "execution reverted" },
                0 => QueryOutcome::Error { message: "execution reverted" },
                _ => QueryOutcome::Result { raw_return_data: hex_of::<64>(rng) },
            },
        },
    })
}

/// A signed text: the part after its padding, and the hash of the whole text.
pub(crate) struct Signed {
    pub(crate) text: String,
    pub(crate) hash: Hash,
}

impl Signed {
    pub(crate) fn of(json: String, padding: Option<&Padding>) -> Self {
        let Some(padding) = padding else {
            let text = STANDARD.encode(json);
            return Self { hash: event_hash(&text), text };
        };
        let text = STANDARD.encode(json.replacen('{', ",", 1));
        Self { hash: padding.event_hash(&text), text }
    }
}

pub(crate) fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// Returns a value of this crate as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text, numbers and maps with text keys are always JSON")
}
