//! The watched contracts: their services, their events, and the parameters of the events.

use rand::Rng;
use rand::rngs::StdRng;

use crate::random::hex_of;

/// A service and the events that its contracts emit.
pub(crate) struct WatchedService {
    pub(crate) name: &'static str,
    pub(crate) events: [ContractEvent; 3],
}

/// An event of a contract, with its parameters.
pub(crate) struct ContractEvent {
    pub(crate) name: &'static str,
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

pub(crate) static SERVICES: [WatchedService; 3] = [
    WatchedService {
        name: "settlement",
        events: [
            ContractEvent {
                name: "SettlementAccepted",
                params: &[
                    ("settlementId", Id),
                    ("settlementHash", Hash),
                    ("seller", Account),
                    ("buyer", Account),
                    ("amount", Amount),
                ],
            },
            ContractEvent {
                name: "SettlementExecuted",
                params: &[
                    ("settlementId", Id),
                    ("settlementHash", Hash),
                    ("asset", Account),
                    ("amount", Amount),
                    ("executedAt", Time),
                ],
            },
            ContractEvent {
                name: "SettlementCancelled",
                params: &[("settlementId", Id), ("settlementHash", Hash), ("by", Account), ("reason", Hash)],
            },
        ],
    },
    WatchedService {
        name: "fund",
        events: [
            ContractEvent {
                name: "SubscriptionRequested",
                params: &[("fundId", Hash), ("investor", Account), ("amount", Amount), ("requestedAt", Time)],
            },
            ContractEvent {
                name: "RedemptionSettled",
                params: &[("fundId", Hash), ("investor", Account), ("shares", Amount), ("proceeds", Amount)],
            },
            ContractEvent {
                name: "NetAssetValueUpdated",
                params: &[("fundId", Hash), ("netAssetValue", Amount), ("asOf", Time), ("reporter", Account)],
            },
        ],
    },
    WatchedService {
        name: "payments",
        events: [
            ContractEvent {
                name: "PaymentInitiated",
                params: &[
                    ("paymentId", Hash),
                    ("payer", Account),
                    ("payee", Account),
                    ("amount", Amount),
                    ("dueAt", Time),
                ],
            },
            ContractEvent {
                name: "PaymentCompleted",
                params: &[("paymentId", Hash), ("payer", Account), ("payee", Account), ("amount", Amount)],
            },
            ContractEvent {
                name: "PaymentReturned",
                params: &[("paymentId", Hash), ("payee", Account), ("amount", Amount), ("sequence", Id)],
            },
        ],
    },
];

/// The event that the wallet of a confirmed operation emits.
pub(crate) static OPERATION_CONFIRMED: ContractEvent = ContractEvent {
    name: "OperationConfirmed",
    params: &[("operationId", Amount), ("wallet", Account), ("digest", Hash)],
};

/// The event that the wallet of a reverted operation emits.
pub(crate) static OPERATION_REVERTED: ContractEvent = ContractEvent {
    name: "OperationReverted",
    params: &[("operationId", Amount), ("wallet", Account), ("digest", Hash)],
};

impl ContractEvent {
    /// Returns the event's name and the types of its parameters in Solidity notation.
    pub(crate) fn signature(&self) -> String {
        let types: Vec<_> = self.params.iter().map(|(_, param)| param.solidity()).collect();
        format!("{}({})", self.name, types.join(","))
    }

    /// Returns made-up arguments, by the names of the parameters.
    pub(crate) fn arguments(&self, happened_at: i64, rng: &mut StdRng) -> Vec<(&'static str, String)> {
        self.params.iter().map(|&(name, param)| (name, param.value(happened_at, rng))).collect()
    }
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

    fn value(self, happened_at: i64, rng: &mut StdRng) -> String {
        match self {
            Self::Id => rng.random_range(1..1_000_000_u32).to_string(),
            Self::Amount => (u128::from(rng.random_range(20..u64::MAX)) * 1_000_000_000_000_000_000).to_string(),
            Self::Account => hex_of::<20>(rng),
            Self::Hash => hex_of::<32>(rng),
            Self::Time => happened_at.to_string(),
        }
    }
}
