//! The parameters of a request: paging, and the search filters by their exact names (spec/wire.md, "Requests").
//!
//! # Invariants
//!
//! * **Strict.** These are refused, so that a client notices its mistakes: a parameter that the path does not have, a
//!   value of the wrong shape, a single-value filter that is given twice, and a filter that applies to none of the
//!   requested types. A filter with an empty value has no effect.

use url::form_urlencoded;
use uuid::Uuid;

use crate::channel::Channel;
use crate::channel::page::{Condition, PageRequest};
use crate::event::log_entry::LogEntry;
use proof::verify::Address;

/// The maximum number of events in a page.
const MAX_LIMIT: usize = 200;

/// Why a request is refused, as text for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidQuery(pub(crate) String);

/// The names and values of a query string.
pub(crate) struct Query(Vec<(String, String)>);

/// The shape of a filter's values.
#[derive(Clone, Copy)]
enum ValueShape {
    Type,
    Environment,
    Text,
    Uuid,
    Address,
}

/// A search filter.
struct FilterParameter {
    name: &'static str,
    shape: ValueShape,
    multi: bool,
    /// The types that the filter applies to.
    types: &'static [&'static str],
}

const OPERATION: &str = "operation.status";
const QUERY: &str = "query.status";
const WALLET: &str = "wallet.status";
const WATCHER: &str = "watcher.status";
const EVENT: &str = "watcher.event";
const ALL: &[&str] = &[OPERATION, QUERY, WALLET, WATCHER, EVENT];

const FILTER_PARAMETERS: [FilterParameter; 12] = [
    FilterParameter { name: "type", shape: ValueShape::Type, multi: true, types: ALL },
    FilterParameter { name: "chain_selector", shape: ValueShape::Text, multi: true, types: ALL },
    FilterParameter { name: "chain_environment", shape: ValueShape::Environment, multi: false, types: ALL },
    FilterParameter {
        name: "status",
        shape: ValueShape::Text,
        multi: true,
        types: &[OPERATION, QUERY, WALLET, WATCHER],
    },
    FilterParameter { name: "watcher_id", shape: ValueShape::Uuid, multi: false, types: &[EVENT, WATCHER] },
    FilterParameter { name: "wallet_id", shape: ValueShape::Uuid, multi: false, types: &[WALLET] },
    FilterParameter { name: "address", shape: ValueShape::Address, multi: true, types: &[OPERATION, EVENT, WALLET] },
    FilterParameter { name: "wallet_operation_id", shape: ValueShape::Text, multi: false, types: &[OPERATION] },
    FilterParameter { name: "operation_id", shape: ValueShape::Text, multi: false, types: &[OPERATION] },
    FilterParameter { name: "query_id", shape: ValueShape::Text, multi: false, types: &[QUERY] },
    FilterParameter { name: "event_name", shape: ValueShape::Text, multi: false, types: &[EVENT] },
    FilterParameter { name: "service", shape: ValueShape::Text, multi: true, types: &[EVENT] },
];

/// The filters of a search. Values are in their canonical spelling.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SearchFilter {
    values: Vec<(&'static str, Vec<String>)>,
    /// The range in Unix seconds, both included.
    created: Option<(i64, i64)>,
}

/// A filter applied to a channel.
pub(crate) struct FilterCondition<'a> {
    pub(crate) channel: &'a Channel,
    pub(crate) filter: &'a SearchFilter,
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// Removes `limit` and `offset` from the query and returns them.
    pub(crate) fn paging(&mut self, default_limit: usize) -> Result<PageRequest, InvalidQuery> {
        let limit =
            number("limit", &self.take("limit"))?.map_or(Some(default_limit), |limit| usize::try_from(limit).ok());
        let limit = limit.filter(|limit| (1..=MAX_LIMIT).contains(limit));
        let limit = limit.ok_or_else(|| InvalidQuery(format!("limit: expected 1 to {MAX_LIMIT}")))?;
        let offset = number("offset", &self.take("offset"))?;
        if offset.is_some_and(|offset| offset < 0) {
            return Err(InvalidQuery("offset: expected a number that is not negative".to_owned()));
        }
        Ok(PageRequest { offset, limit })
    }

    /// Removes the filters from the query and returns them.
    pub(crate) fn filter(&mut self) -> Result<SearchFilter, InvalidQuery> {
        let created = self.created()?;
        let mut values = Vec::new();
        for parameter in &FILTER_PARAMETERS {
            let given = self.take_filter(parameter.name);
            if given.len() > 1 && !parameter.multi {
                return Err(InvalidQuery(format!("{}: given more than once", parameter.name)));
            }
            let given = given.iter().map(|value| parameter.shape.read(value));
            let given = given.collect::<Option<Vec<_>>>();
            let given = given.ok_or_else(|| InvalidQuery(format!("{}: not a valid value", parameter.name)))?;
            if !given.is_empty() {
                values.push((parameter.name, given));
            }
        }
        let filter = SearchFilter { values, created };
        filter.applies().map(|()| filter)
    }

    /// Checks that no parameter is left.
    pub(crate) fn finish(self) -> Result<(), InvalidQuery> {
        self.0.first().map_or(Ok(()), |(name, _)| Err(InvalidQuery(format!("{name}: no such parameter"))))
    }

    fn created(&mut self) -> Result<Option<(i64, i64)>, InvalidQuery> {
        let mut bound = |name| number(name, &self.take_filter(name));
        let above = bound("created.gt")?.map(|bound| bound.saturating_add(1));
        let below = bound("created.lt")?.map(|bound| bound.saturating_sub(1));
        let from = above.into_iter().chain(bound("created.gte")?).max();
        let to = below.into_iter().chain(bound("created.lte")?).min();
        Ok((from.is_some() || to.is_some()).then(|| (from.unwrap_or(i64::MIN), to.unwrap_or(i64::MAX))))
    }

    /// An empty value is not a filter: clients send it for an empty list.
    fn take_filter(&mut self, name: &str) -> Vec<String> {
        self.take(name).into_iter().filter(|value| !value.is_empty()).collect()
    }

    fn take(&mut self, name: &str) -> Vec<String> {
        self.0.extract_if(.., |(given, _)| given == name).map(|(_, value)| value).collect()
    }
}

fn number(name: &str, values: &[String]) -> Result<Option<i64>, InvalidQuery> {
    match values {
        [] => Ok(None),
        [value] => value.parse().map(Some).map_err(|_| InvalidQuery(format!("{name}: expected a whole number"))),
        _ => Err(InvalidQuery(format!("{name}: given more than once"))),
    }
}

impl ValueShape {
    /// Returns the value in its canonical spelling.
    fn read(self, value: &str) -> Option<String> {
        let valid = match self {
            Self::Type => ALL.contains(&value),
            Self::Environment => matches!(value, "mainnet" | "testnet"),
            Self::Text => true,
            Self::Uuid => return value.parse::<Uuid>().ok().map(|id| id.to_string()),
            Self::Address => return value.parse::<Address>().ok().map(|address| address.to_string()),
        };
        valid.then(|| value.to_owned())
    }
}

impl SearchFilter {
    /// Checks that every filter applies to at least one of the requested types.
    fn applies(&self) -> Result<(), InvalidQuery> {
        let requested = self.values.iter().find(|(name, _)| *name == "type").map(|(_, types)| types);
        let Some(requested) = requested else { return Ok(()) };
        let useless = self.values.iter().find(|(name, _)| {
            let parameter = FILTER_PARAMETERS.iter().find(|parameter| parameter.name == *name);
            parameter.is_some_and(|parameter| !requested.iter().any(|name| parameter.types.contains(&name.as_str())))
        });
        useless.map_or(Ok(()), |(name, _)| {
            Err(InvalidQuery(format!("{name}: does not apply to {}", requested.join(", "))))
        })
    }
}

impl Condition for FilterCondition<'_> {
    fn noted(&self) -> Option<(i64, i64)> {
        self.filter.created
    }

    fn holds(&self, entry: &LogEntry) -> bool {
        let facts = self.channel.facts(entry);
        let noted = self.filter.created.is_none_or(|(from, to)| (from..=to).contains(&facts.created));
        let one_of = |(name, values): &(&str, Vec<String>)| {
            facts.value(name).is_some_and(|value| values.iter().any(|wanted| *wanted == value))
        };
        noted && self.filter.values.iter().all(one_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(query: &str) -> Result<SearchFilter, InvalidQuery> {
        let mut query = Query::parse(Some(query));
        query.paging(50)?;
        let filter = query.filter()?;
        query.finish().map(|()| filter)
    }

    #[test]
    fn every_filter_is_known_by_its_exact_name() {
        for query in [
            "",
            "limit=200&offset=0",
            "type=watcher.event&type=query.status",
            "created.gt=1&created.gte=2&created.lt=9&created.lte=8",
            "chain_selector=1&chain_selector=2",
            "chain_environment=testnet",
            "type=wallet.status&status=deployed&status=new",
            "watcher_id=1d022452-4f92-5b2d-910e-d02b360d4bfa",
            "address=0x742d35Cc6634C0532925a3b844Bc454e4438f44e",
            "type=operation.status&wallet_operation_id=any&operation_id=text",
            "type=query.status&query_id=any+text",
            "chain_selector=0x1",
            "type=&created.gt=&watcher_id=&service=&type=watcher.event&wallet_id=",
            "type=watcher.event&event_name=Transfer&service=a&service=b",
            "type=watcher.event&type=wallet.status&event_name=Transfer",
        ] {
            assert!(search(query).is_ok(), "{query}");
        }
    }

    #[test]
    fn malformed_or_inapplicable_filters_are_refused() {
        for query in [
            "limit=0",
            "limit=201",
            "limit=x",
            "limit=1&limit=2",
            "offset=-1",
            "offset=1.5",
            "created_gt=1",
            "created.gt=yesterday",
            "type=watcher",
            "limit=",
            "chain_environment=devnet",
            "watcher_id=1",
            "address=0x12",
            "event_name=A&event_name=B",
            "type=watcher.event&status=active",
            "type=watcher.status&event_name=A",
            "type=watcher.event&wallet_id=1d022452-4f92-5b2d-910e-d02b360d4bfa",
            "colour=blue",
        ] {
            assert!(search(query).is_err(), "{query}");
        }
    }

    #[test]
    fn time_bounds_combine_to_the_narrowest() {
        let filter = search("created.gt=1&created.gte=5&created.lt=9&created.lte=20").expect("valid");
        assert_eq!(filter.created, Some((5, 8)));
    }
}
