//! The properties of an event that are known without signing it. Search filters use them, and the content is made from them.

use std::borrow::Cow;

use rand::Rng;
use uuid::Uuid;

use super::contracts::{ContractEvent, SERVICES};
use super::kind::Kind;
use super::log_entry::LogEntry;
use super::roster::{Chain, Roster, Wallet, Watcher};
use crate::random::{Purpose, draw, uuid};
use proof::event::ChannelId;

/// The service records an event up to this many seconds after it happened.
pub(crate) const CREATED_SKEW: i64 = 2;

const TEN_TO_38: u128 = 10_u128.pow(38);

/// The properties of an event, drawn from the seed.
pub(crate) struct ContentFacts<'a> {
    pub(crate) channel: ChannelId,
    pub(crate) kind: Kind,
    /// When the event happened, in Unix seconds.
    pub(crate) timestamp: i64,
    /// When the service recorded the event, in Unix seconds. The filters `created.*` use this time.
    pub(crate) created: i64,
    pub(crate) watcher: &'a Watcher,
    pub(crate) wallet: &'a Wallet,
    pub(crate) emitted: &'static ContractEvent,
    pub(crate) operation_id: Uuid,
    pub(crate) query_id: Uuid,
    pub(crate) workflow_id: [u8; 32],
    pub(crate) execution_id: [u8; 32],
    wallet_operation: [u128; 2],
}

impl<'a> ContentFacts<'a> {
    pub(crate) fn of(seed: u64, channel: u64, roster: &'a Roster, entry: &LogEntry) -> Self {
        let mut rng = draw(seed, Purpose::ContentFacts, channel, entry.drawn);
        let watcher = &roster.watchers[rng.random_range(0..roster.watchers.len())];
        let events = &SERVICES[watcher.service].events;
        Self {
            channel: roster.channel,
            kind: entry.spec.kind(),
            timestamp: entry.timestamp,
            created: entry.timestamp + rng.random_range(0..=CREATED_SKEW),
            watcher,
            wallet: &roster.wallets[rng.random_range(0..roster.wallets.len())],
            emitted: &events[rng.random_range(0..events.len())],
            operation_id: uuid(&mut rng),
            query_id: uuid(&mut rng),
            workflow_id: watcher.workflow_id(entry.deployment),
            execution_id: rng.random(),
            wallet_operation: [rng.random_range(1..TEN_TO_38), rng.random_range(0..TEN_TO_38)],
        }
    }

    /// Returns the number that the wallet gave the operation: up to 76 digits.
    pub(crate) fn wallet_operation_id(&self) -> String {
        let [high, low] = self.wallet_operation;
        format!("{high}{low:038}")
    }

    /// Returns the chain of the event.
    pub(crate) fn chain(&self) -> &'static Chain {
        match self.kind {
            Kind::OperationConfirmed
            | Kind::OperationAccepted
            | Kind::OperationFailed
            | Kind::OperationReverted
            | Kind::WalletStatus => self.wallet.chain,
            _ => self.watcher.chain,
        }
    }

    /// Returns the value that the search filter with this name compares. `None` if the event has no such value.
    pub(crate) fn value(&self, filter: &str) -> Option<Cow<'_, str>> {
        let text = |text: &'a str| Some(Cow::Borrowed(text));
        let id = |id: Uuid| Some(Cow::Owned(id.to_string()));
        match (filter, self.kind.event_type()) {
            ("type", name) => text(name),
            ("chain_selector", _) => text(self.chain().selector),
            ("chain_environment", _) => text(self.chain().environment),
            ("status", _) => self.kind.status().map(Cow::Borrowed),
            ("watcher_id", "watcher.event" | "watcher.status") => id(self.watcher.id),
            ("wallet_id", "wallet.status") => id(self.wallet.id),
            ("address", "watcher.event") => text(&self.watcher.address),
            ("address", "operation.status" | "wallet.status") => text(&self.wallet.address),
            ("wallet_operation_id", "operation.status") => Some(Cow::Owned(self.wallet_operation_id())),
            ("operation_id", "operation.status") => id(self.operation_id),
            ("query_id", "query.status") => id(self.query_id),
            ("event_name", "watcher.event") => text(self.emitted.name),
            ("service", "watcher.event") => text(SERVICES[self.watcher.service].name),
            _ => None,
        }
    }
}
