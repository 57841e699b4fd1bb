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
    /// Chain selector, for example 15971525489660198786; repeatable.
    #[arg(long = "chain-selector", value_name = "SELECTOR", value_parser = text())]
    pub chain_selectors: Vec<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_is_sent_by_its_exact_name_and_repeated_for_each_value() {
        let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        let filter = Filter {
            types: vec![WatcherEvent, WatcherStatus],
            event_name: Some("Transfer".to_owned()),
            addresses: texts(&["0x1", "0x2"]),
            chain_selectors: texts(&["7", "0x8"]),
            chain_environment: Some("testnet".to_owned()),
            watcher_id: Some(ids[0]),
            wallet_id: Some(ids[1]),
            services: texts(&["a", "b"]),
            statuses: texts(&["sent", "failed"]),
            wallet_operation_id: Some("any".to_owned()),
            operation_id: Some("op".to_owned()),
            query_id: Some("q".to_owned()),
            created: Created { gt: Some(1), gte: Some(2), lt: Some(3), lte: Some(4) },
        };
        let query: Vec<_> = filter.query().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let [watcher, wallet] = ids.map(|id| id.to_string());
        let expected = format!(
            "type=watcher.event&type=watcher.status&created.gt=1&created.gte=2&created.lt=3&created.lte=4&chain_selector=7&\
             chain_selector=0x8&chain_environment=testnet&status=sent&status=failed&watcher_id={watcher}&wallet_id={wallet}&\
             address=0x1&address=0x2&wallet_operation_id=any&operation_id=op&query_id=q&event_name=Transfer&service=a&service=b"
        );
        assert_eq!(query.join("&"), expected);
    }

    #[test]
    fn a_filter_of_another_type_is_refused_before_it_is_sent() {
        let check = |kind: &EventType, name: &str| {
            let types = vec![kind.clone()];
            let (id, text) = (Some(Uuid::from_u128(1)), Some("x".to_owned()));
            let filter = match name {
                "status" => Filter { statuses: vec!["x".to_owned()], ..Filter::default() },
                "watcher_id" => Filter { watcher_id: id, ..Filter::default() },
                "wallet_id" => Filter { wallet_id: id, ..Filter::default() },
                "address" => Filter { addresses: vec!["0x1".to_owned()], ..Filter::default() },
                "operation_id" => Filter { operation_id: text, ..Filter::default() },
                "wallet_operation_id" => Filter { wallet_operation_id: text, ..Filter::default() },
                "query_id" => Filter { query_id: text, ..Filter::default() },
                "event_name" => Filter { event_name: text, ..Filter::default() },
                _ => Filter { services: vec!["x".to_owned()], ..Filter::default() },
            };
            Filter { types, ..filter }.check().is_ok()
        };
        let all = [OperationStatus, QueryStatus, WatcherStatus, WalletStatus, WatcherEvent];
        for (name, applies_to) in [
            ("status", &[OperationStatus, QueryStatus, WatcherStatus, WalletStatus][..]),
            ("watcher_id", &[WatcherEvent, WatcherStatus]),
            ("wallet_id", &[WalletStatus]),
            ("address", &[OperationStatus, WatcherEvent, WalletStatus]),
            ("operation_id", &[OperationStatus]),
            ("wallet_operation_id", &[OperationStatus]),
            ("query_id", &[QueryStatus]),
            ("event_name", &[WatcherEvent]),
            ("service", &[WatcherEvent]),
        ] {
            for kind in &all {
                assert_eq!(check(kind, name), applies_to.contains(kind), "{name} for {kind:?}");
            }
        }
    }
}
