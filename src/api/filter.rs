//! Search filters: their exact names, and which of them apply to which type.

use reqwest::RequestBuilder;
use serde::Serialize;

use crate::event::EventType;

use EventType::{OperationStatus, QueryStatus, WalletStatus, WatcherEvent, WatcherStatus};

/// What to search for. Empty means everything; each filter narrows the search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Any of these kinds.
    pub types: Vec<EventType>,
    /// By the time the service created the event, in Unix seconds: close to the payload's time, not promised equal.
    pub created: Created,
    /// The other filters, by their names at the service. Several values of one name: any of them.
    pub others: Vec<(&'static str, String)>,
}

/// Bounds on when an event was created, in Unix seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Created {
    /// After this second.
    #[serde(rename = "created.gt")]
    pub gt: Option<i64>,
    /// In this second or after it.
    #[serde(rename = "created.gte")]
    pub gte: Option<i64>,
    /// Before this second.
    #[serde(rename = "created.lt")]
    pub lt: Option<i64>,
    /// In this second or before it.
    #[serde(rename = "created.lte")]
    pub lte: Option<i64>,
}

impl Filter {
    /// Also requires one of these values; none of them, no filter. `name` is the service's, such as `watcher_id`.
    #[must_use]
    pub fn with(mut self, name: &'static str, values: impl IntoIterator<Item = impl ToString>) -> Self {
        self.others.extend(values.into_iter().map(|value| (name, value.to_string())));
        self
    }

    /// The request with this filter; one with several values repeats its name.
    pub(super) fn apply(&self, request: RequestBuilder) -> RequestBuilder {
        let types: Vec<_> = self.types.iter().map(|kind| ("type", kind.as_ref())).collect();
        request.query(&types).query(&self.created).query(&self.others)
    }

    /// Checks that every filter applies to one at least of the types that are searched for. Without types all do, and
    /// the service decides about a type that is not known here.
    ///
    /// With several types the documentation does not say whether a filter has to fit all of them: what fits one is
    /// let through, because a refusal by the service says so and a refusal here could not be got around.
    ///
    /// # Errors
    /// Names the first that does not, and the types that it applies to.
    pub fn check(&self) -> Result<(), String> {
        if self.types.is_empty() || self.types.iter().any(|kind| matches!(kind, EventType::Other(_))) {
            return Ok(());
        }
        let misfit = APPLIES_TO.iter().find(|(name, applies_to)| {
            self.others.iter().any(|(given, _)| given == name)
                && !self.types.iter().any(|kind| applies_to.contains(kind))
        });
        misfit.map_or(Ok(()), |(name, applies_to)| {
            let types: Vec<_> = applies_to.iter().map(EventType::as_ref).collect();
            Err(format!("`{name}` applies to {} only", types.join(", ")))
        })
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
