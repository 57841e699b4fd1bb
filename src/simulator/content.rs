//! The signed content of events: what watched contracts emit and chain queries return.

use rand::Rng;
use rand::rngs::StdRng;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::facts::Facts;
use super::kind::Kind;
use super::random::hex_of;
use crate::event::ChannelId;
use crate::verify::keccak256;

/// A service and the events that its contracts emit.
pub(super) struct WatchedService {
    pub(super) name: &'static str,
    pub(super) events: [Emitted; 3],
}

/// An event of a contract, with its parameters.
pub(super) struct Emitted {
    pub(super) name: &'static str,
    params: &'static [(&'static str, Param)],
}

#[derive(Clone, Copy)]
enum Param {
    /// A number of up to 64 bits.
    Id,
    /// A number that does not fit 64 bits.
    Amount,
    Account,
    Hash,
    Time,
}

use Param::{Account, Amount, Hash, Id, Time};

pub(super) static SERVICES: [WatchedService; 3] = [
    WatchedService {
        name: "settlement",
        events: [
            Emitted {
                name: "SettlementAccepted",
                params: &[
                    ("settlementId", Id),
                    ("settlementHash", Hash),
                    ("seller", Account),
                    ("buyer", Account),
                    ("amount", Amount),
                ],
            },
            Emitted {
                name: "SettlementExecuted",
                params: &[
                    ("settlementId", Id),
                    ("settlementHash", Hash),
                    ("asset", Account),
                    ("amount", Amount),
                    ("executedAt", Time),
                ],
            },
            Emitted {
                name: "SettlementCancelled",
                params: &[("settlementId", Id), ("settlementHash", Hash), ("by", Account), ("reason", Hash)],
            },
        ],
    },
    WatchedService {
        name: "fund",
        events: [
            Emitted {
                name: "SubscriptionRequested",
                params: &[("fundId", Hash), ("investor", Account), ("amount", Amount), ("requestedAt", Time)],
            },
            Emitted {
                name: "RedemptionSettled",
                params: &[("fundId", Hash), ("investor", Account), ("shares", Amount), ("proceeds", Amount)],
            },
            Emitted {
                name: "NetAssetValueUpdated",
                params: &[("fundId", Hash), ("netAssetValue", Amount), ("asOf", Time), ("reporter", Account)],
            },
        ],
    },
    WatchedService {
        name: "payments",
        events: [
            Emitted {
                name: "PaymentInitiated",
                params: &[
                    ("paymentId", Hash),
                    ("payer", Account),
                    ("payee", Account),
                    ("amount", Amount),
                    ("dueAt", Time),
                ],
            },
            Emitted {
                name: "PaymentCompleted",
                params: &[("paymentId", Hash), ("payer", Account), ("payee", Account), ("amount", Amount)],
            },
            Emitted {
                name: "PaymentReturned",
                params: &[("paymentId", Hash), ("payee", Account), ("amount", Amount), ("sequence", Id)],
            },
        ],
    },
];

/// The service's own name in what is signed.
const BACKEND: &str = "_crec";

static OPERATION_CONFIRMED: Emitted =
    Emitted { name: "OperationConfirmed", params: &[("operationId", Amount), ("wallet", Account), ("digest", Hash)] };

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
    confidence: &'static str,
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

/// What a watched contract emitted, or the wallet of a confirmed operation.
pub(super) fn verifiable_event(facts: &Facts<'_>, rng: &mut StdRng) -> String {
    let (emitted, service, address) = match facts.kind {
        Kind::OperationConfirmed => (&OPERATION_CONFIRMED, BACKEND, &facts.wallet.address),
        _ => (facts.emitted, SERVICES[facts.watcher.service].name, &facts.watcher.address),
    };
    let types: Vec<_> = emitted.params.iter().map(|(_, param)| param.solidity()).collect();
    let event_signature = format!("{}({})", emitted.name, types.join(","));
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
            confidence: "finalized",
            params: Params(emitted.params.iter().map(|&(name, param)| (name, param.value(facts, rng))).collect()),
        },
        name: emitted.name,
        service,
        timestamp: rfc3339(facts.timestamp),
    })
}

/// What a chain query returned.
pub(super) fn verifiable_result(facts: &Facts<'_>, rng: &mut StdRng) -> String {
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
                0 => QueryOutcome::Error { message: "execution reverted" },
                _ => QueryOutcome::Result { raw_return_data: hex_of::<64>(rng) },
            },
        },
    })
}

impl Param {
    fn solidity(self) -> &'static str {
        match self {
            Self::Id | Self::Time => "uint64",
            Self::Amount => "uint256",
            Self::Account => "address",
            Self::Hash => "bytes32",
        }
    }

    fn value(self, facts: &Facts<'_>, rng: &mut StdRng) -> String {
        match self {
            Self::Id => rng.random_range(1..1_000_000_u32).to_string(),
            Self::Amount => (u128::from(rng.random_range(20..u64::MAX)) * 1_000_000_000_000_000_000).to_string(),
            Self::Account => hex_of::<20>(rng),
            Self::Hash => hex_of::<32>(rng),
            Self::Time => facts.timestamp.to_string(),
        }
    }
}

pub(super) fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap_or_default().to_string()
}

/// A value of this crate's own as JSON.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("text, numbers and maps with text keys are always JSON")
}
