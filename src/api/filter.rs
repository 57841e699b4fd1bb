//! Search filters: their exact names, and the event types that they apply to.

use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use proof::event::EventType;

use EventType::{OperationStatus, QueryStatus, WalletStatus, WatcherEvent, WatcherStatus};

/// The filters of a search. Without filters, everything matches. Each filter narrows the search. A repeatable filter
/// matches any of its values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
#[command(next_help_heading = "Filters")]
pub struct Filter {
    /// Kind of event: watcher.event, operation.status, query.status, watcher.status or wallet.status; repeatable.
    #[arg(long = "type", value_name = "TYPE", value_parser = text().map(|kind| EventType::from(&*kind)))]
    pub types: Vec<EventType>,
    /// Name of the watched event (watcher.event).
    #[arg(long, value_parser = text())]
    pub event_name: Option<String>,
    /// Contract or wallet address (operation.status, watcher.event, wallet.status); repeatable.
    #[arg(long = "address", value_name = "ADDRESS", value_parser = address)]
    pub addresses: Vec<String>,
    /// Chain selector, a decimal number; repeatable.
    #[arg(long = "chain-selector", value_name = "SELECTOR")]
    pub chain_selectors: Vec<u64>,
    /// Chains of this environment only.
    #[arg(long, value_parser = ["mainnet", "testnet"])]
    pub chain_environment: Option<String>,
    /// Events of one watcher (watcher.event, watcher.status).
    #[arg(long)]
    pub watcher_id: Option<Uuid>,
    /// Events of one wallet (wallet.status).
    #[arg(long)]
    pub wallet_id: Option<Uuid>,
    /// Service of the watcher (watcher.event); repeatable.
    #[arg(long = "service", value_name = "SERVICE", value_parser = text())]
    pub services: Vec<String>,
    /// Status, such as confirmed (every kind but watcher.event); repeatable.
    #[arg(long = "status", value_name = "STATUS", value_parser = text())]
    pub statuses: Vec<String>,
    /// The operation's id in its wallet (operation.status).
    #[arg(long, value_parser = text())]
    pub wallet_operation_id: Option<String>,
    /// The operation's id (operation.status).
    #[arg(long, value_parser = text())]
    pub operation_id: Option<String>,
    /// The chain query's id (query.status).
    #[arg(long, value_parser = text())]
    pub query_id: Option<String>,
    /// Bounds on the time at which the service created the event. The payload's own time can differ a little.
    #[command(flatten)]
    pub created: Created,
}

/// Bounds on when an event was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Created {
    /// Created after this time: RFC 3339, Unix seconds such as @1793491200, or a duration such as 1h, which means that long ago.
    #[arg(long = "created-gt", value_name = "TIME", value_parser = net::time::seconds)]
    pub gt: Option<i64>,
    /// Created at this time or later.
    #[arg(long = "created-gte", value_name = "TIME", value_parser = net::time::seconds)]
    pub gte: Option<i64>,
    /// Created before this time.
    #[arg(long = "created-lt", value_name = "TIME", value_parser = net::time::seconds)]
    pub lt: Option<i64>,
    /// Created at this time or earlier.
    #[arg(long = "created-lte", value_name = "TIME", value_parser = net::time::seconds)]
    pub lte: Option<i64>,
}

impl Created {
    /// Whether an event with this time, in Unix seconds, is within the bounds. An event without a time matches only if
    /// no bounds are set.
    pub fn takes(&self, time: Option<i64>) -> bool {
        let Self { gt, gte, lt, lte } = *self;
        let Some(time) = time else { return *self == Self::default() };
        gt.is_none_or(|gt| time > gt)
            && gte.is_none_or(|gte| time >= gte)
            && lt.is_none_or(|lt| time < lt)
            && lte.is_none_or(|lte| time <= lte)
    }
}

impl Filter {
    /// The query of the request. A filter with several values repeats its name.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let Created { gt, gte, lt, lte } = self.created;
        named("type", &self.types)
            .chain(named("created.gt", gt))
            .chain(named("created.gte", gte))
            .chain(named("created.lt", lt))
            .chain(named("created.lte", lte))
            .chain(named("chain_selector", &self.chain_selectors))
            .chain(named("chain_environment", &self.chain_environment))
            .chain(named("status", &self.statuses))
            .chain(named("watcher_id", self.watcher_id))
            .chain(named("wallet_id", self.wallet_id))
            .chain(named("address", &self.addresses))
            .chain(named("wallet_operation_id", &self.wallet_operation_id))
            .chain(named("operation_id", &self.operation_id))
            .chain(named("query_id", &self.query_id))
            .chain(named("event_name", &self.event_name))
            .chain(named("service", &self.services))
            .collect()
    }

    /// Checks that every filter applies to at least one of the searched types. Without types all filters apply, and the
    /// service decides about types that this version does not know.
    ///
    /// The service's documentation does not say whether a filter must apply to all of several types. This check accepts
    /// a filter that applies to one of them. If the service refuses the filter, the caller sees the reason. If this
    /// check refused the filter by mistake, the caller could not use the filter at all.
    ///
    /// # Errors
    /// Names the first filter that does not apply, and the types that it applies to.
    pub fn check(&self) -> Result<(), String> {
        if self.types.is_empty() || self.types.iter().any(|kind| matches!(kind, EventType::Other(_))) {
            return Ok(());
        }
        let given = self.query();
        let misfit = APPLIES_TO.iter().find(|(name, applies_to)| {
            given.iter().any(|(given, _)| given == name) && !self.types.iter().any(|kind| applies_to.contains(kind))
        });
        misfit.map_or(Ok(()), |(name, applies_to)| {
            let types: Vec<_> = applies_to.iter().map(EventType::as_ref).collect();
            Err(format!("`{name}` applies to {} only", types.join(", ")))
        })
    }
}

fn named(
    name: &'static str,
    values: impl IntoIterator<Item = impl ToString>,
) -> impl Iterator<Item = (&'static str, String)> {
    values.into_iter().map(move |value| (name, value.to_string()))
}

fn text() -> NonEmptyStringValueParser {
    NonEmptyStringValueParser::new()
}

/// Checks the format of an address. Keeps upper and lower case.
fn address(text: &str) -> Result<String, &'static str> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 40);
    let well_formed = digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if well_formed { Ok(text.to_owned()) } else { Err("not 0x and 40 hexadecimal digits") }
}

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
