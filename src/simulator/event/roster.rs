//! The members of a channel: its watchers and wallets, and their chains.

use rand::Rng;
use serde::Serialize;
use uuid::Uuid;

use super::contracts::SERVICES;
use crate::random::{Purpose, draw, hex_of, uuid};
use proof::event::ChannelId;
use proof::verify::keccak256;

/// How many wallets a channel has.
const WALLETS: usize = 3;

/// A chain that the service supports.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) selector: &'static str,
    pub(crate) id: &'static str,
    pub(crate) environment: &'static str,
}

static CHAINS: [Chain; 3] = [
    Chain { selector: "5009297550715157269", id: "1", environment: "mainnet" },
    Chain { selector: "15971525489660198786", id: "8453", environment: "mainnet" },
    Chain { selector: "16015286601757825753", id: "11155111", environment: "testnet" },
];

/// A watcher: it watches one contract of one service.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) id: Uuid,
    pub(crate) service: usize,
    pub(crate) chain: &'static Chain,
    pub(crate) address: String,
    first_workflow_id: [u8; 32],
}

impl Watcher {
    /// Returns the id of the watcher's workflow after this many redeployments.
    pub(crate) fn workflow_id(&self, deployment: u64) -> [u8; 32] {
        let number = deployment.to_be_bytes();
        if deployment == 0 { self.first_workflow_id } else { keccak256([&self.first_workflow_id[..], &number]).0 }
    }
}

/// The `chain_event.confidence` of watcher events (spec/wire.md, "Finality"). Each log is published once, at this level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WatcherConfidence {
    /// `latest`.
    Latest,
    /// `safe`.
    Safe,
    /// `finalized`.
    #[default]
    Finalized,
    /// Events without a confidence.
    Absent,
    /// Each watcher has one of the above, according to its id.
    Mixed,
}

impl WatcherConfidence {
    /// Returns the confidence of the watcher with this id.
    pub(crate) fn of(self, watcher: Uuid) -> Option<&'static str> {
        match self {
            Self::Latest => Some("latest"),
            Self::Safe => Some("safe"),
            Self::Finalized => Some("finalized"),
            Self::Absent => None,
            Self::Mixed => {
                let all = [Self::Latest, Self::Safe, Self::Finalized, Self::Absent];
                all[usize::from(watcher.as_bytes()[0]) % all.len()].of(watcher)
            }
        }
    }
}

/// The status of a watcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the service's")]
pub enum WatcherStatus {
    Pending,
    #[default]
    Active,
    Failed,
    Archiving,
    Archived,
    ArchiveFailed,
}

/// A wallet.
#[derive(Debug)]
pub(crate) struct Wallet {
    pub(crate) id: Uuid,
    pub(crate) chain: &'static Chain,
    pub(crate) address: String,
}

/// A channel's id, watchers and wallets.
#[derive(Debug)]
pub(crate) struct Roster {
    pub(crate) channel: ChannelId,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) wallets: Vec<Wallet>,
}

impl Roster {
    pub(crate) fn new(seed: u64, channel: u64) -> Self {
        let mut rng = draw(seed, Purpose::Channel, channel, 0);
        let id = ChannelId(uuid(&mut rng));
        let mut chain = || &CHAINS[rng.random_range(0..CHAINS.len())];
        let watcher_chains: [_; SERVICES.len()] = std::array::from_fn(|_| chain());
        let wallet_chains: [_; WALLETS] = std::array::from_fn(|_| chain());
        let watchers = watcher_chains.into_iter().enumerate().map(|(service, chain)| Watcher {
            id: uuid(&mut rng),
            service,
            chain,
            address: hex_of::<20>(&mut rng),
            first_workflow_id: rng.random(),
        });
        let watchers = watchers.collect();
        let wallets = wallet_chains.into_iter().map(|chain| Wallet {
            id: uuid(&mut rng),
            chain,
            address: hex_of::<20>(&mut rng),
        });
        Self { channel: id, watchers, wallets: wallets.collect() }
    }

    pub(crate) fn watcher_ids(&self) -> Vec<Uuid> {
        self.watchers.iter().map(|watcher| watcher.id).collect()
    }
}
