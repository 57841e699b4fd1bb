//! Search filters: their exact names, and which of them apply to which type.

use uuid::Uuid;

use crate::event::EventType;

use EventType::{OperationStatus, QueryStatus, WalletStatus, WatcherEvent, WatcherStatus};

/// What to search for. Empty means everything; what is given narrows the search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Any of these kinds.
    pub types: Vec<EventType>,
    /// By the time the service created the event, in Unix seconds: close to the payload's time, not promised equal.
    pub created: Created,
    /// Any of these chains.
    pub chain_selectors: Vec<String>,
    /// `mainnet` or `testnet`.
    pub chain_environment: Option<String>,
    /// Any of these statuses.
    pub statuses: Vec<String>,
    /// Events of one watcher.
    pub watcher_id: Option<Uuid>,
    /// Events of one wallet.
    pub wallet_id: Option<Uuid>,
    /// Any of these contracts or wallets.
    pub addresses: Vec<String>,
    /// The operation's id in its wallet.
    pub wallet_operation_id: Option<String>,
    /// The operation's id at the service.
    pub operation_id: Option<String>,
    /// The chain query's id.
    pub query_id: Option<String>,
    /// The watched event's name.
    pub event_name: Option<String>,
    /// Any of these services.
    pub services: Vec<String>,
}

/// Bounds on when an event was created, in Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// After this second.
    pub gt: Option<i64>,
    /// In this second or after it.
    pub gte: Option<i64>,
    /// Before this second.
    pub lt: Option<i64>,
    /// In this second or before it.
    pub lte: Option<i64>,
}

/// A filter that applies to none of the types that are searched for: the service refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` applies to {} only", .applies_to.iter().map(EventType::as_str).collect::<Vec<_>>().join(", "))]
pub struct FilterError {
    /// The filter's name in the request.
    pub name: &'static str,
    /// The types that it applies to.
    pub applies_to: &'static [EventType],
}

impl Filter {
    /// The request's query, by spec/wire.md; a filter with several values repeats its name.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let mut query: Vec<(&'static str, String)> = Vec::new();
        query.extend(self.types.iter().map(|kind| ("type", kind.to_string())));
        query.extend(self.created.query());
        query.extend(several("chain_selector", &self.chain_selectors));
        query.extend(one("chain_environment", self.chain_environment.as_ref()));
        query.extend(several("status", &self.statuses));
        query.extend(one("watcher_id", self.watcher_id.as_ref()));
        query.extend(one("wallet_id", self.wallet_id.as_ref()));
        query.extend(several("address", &self.addresses));
        query.extend(one("wallet_operation_id", self.wallet_operation_id.as_ref()));
        query.extend(one("operation_id", self.operation_id.as_ref()));
        query.extend(one("query_id", self.query_id.as_ref()));
        query.extend(one("event_name", self.event_name.as_ref()));
        query.extend(several("service", &self.services));
        query
    }

    /// Checks that every filter applies to one at least of the types that are searched for. Without types all do, and
    /// a type that is not known here is left for the service to judge.
    ///
    /// With several types the documentation does not say whether a filter has to fit all of them: what fits one is
    /// let through, because a refusal by the service says so and a refusal here could not be got around.
    ///
    /// # Errors
    /// [`FilterError`], for the first that does not.
    pub fn check(&self) -> Result<(), FilterError> {
        if self.types.is_empty() || self.types.iter().any(|kind| matches!(kind, EventType::Other(_))) {
            return Ok(());
        }
        let given = self.query();
        let misfit = APPLIES_TO.iter().find(|(name, applies_to)| {
            given.iter().any(|(given, _)| given == name) && !self.types.iter().any(|kind| applies_to.contains(kind))
        });
        misfit.map_or(Ok(()), |&(name, applies_to)| Err(FilterError { name, applies_to }))
    }
}

impl Created {
    fn query(self) -> impl Iterator<Item = (&'static str, String)> {
        [("created.gt", self.gt), ("created.gte", self.gte), ("created.lt", self.lt), ("created.lte", self.lte)]
            .into_iter()
            .filter_map(|(name, second)| Some((name, second?.to_string())))
    }
}

/// The filters that do not apply to every type.
const APPLIES_TO: [(&str, &[EventType]); 9] = [
    ("status", &[OperationStatus, QueryStatus, WatcherStatus, WalletStatus]),
    ("watcher_id", &[WatcherEvent, WatcherStatus]),
    ("wallet_id", &[WalletStatus]),
    ("address", &[OperationStatus, WatcherEvent, WalletStatus]),
    ("wallet_operation_id", &[OperationStatus]),
    ("operation_id", &[OperationStatus]),
    ("query_id", &[QueryStatus]),
    ("event_name", &[WatcherEvent]),
    ("service", &[WatcherEvent]),
];

fn one(name: &'static str, value: Option<&impl ToString>) -> Option<(&'static str, String)> {
    value.map(|value| (name, value.to_string()))
}

fn several(name: &'static str, values: &[String]) -> impl Iterator<Item = (&'static str, String)> {
    values.iter().map(move |value| (name, value.clone()))
}
