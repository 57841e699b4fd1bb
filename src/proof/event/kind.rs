//! The types of events, and their statuses.

use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString};

impl EventType {
    /// The types that this version knows, as the service writes them.
    pub const KNOWN: [&str; 5] =
        ["watcher.event", "watcher.status", "operation.status", "wallet.status", "query.status"];
}

/// The type of an event, from the service's `headers.type`.
///
/// New types appear over time. An unknown type keeps its name and is treated as a notice, which is never signed. The
/// `*Status` types report a new state.
#[expect(missing_docs, reason = "the names of the service describe the variants")]
#[derive(Clone, Debug, PartialEq, Eq, AsRefStr, Display, EnumString, Deserialize)]
#[serde(from = "String")]
pub enum EventType {
    /// An event emitted by a watched contract.
    #[strum(serialize = "watcher.event")]
    WatcherEvent,
    #[strum(serialize = "watcher.status")]
    WatcherStatus,
    #[strum(serialize = "operation.status")]
    OperationStatus,
    #[strum(serialize = "wallet.status")]
    WalletStatus,
    #[strum(serialize = "query.status")]
    QueryStatus,
    /// A type that this version does not know.
    #[strum(default, transparent)]
    Other(Box<str>),
}

impl From<String> for EventType {
    fn from(name: String) -> Self {
        Self::from(&*name)
    }
}

impl Serialize for EventType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_ref())
    }
}
