//! The changes between two configurations, and the request that makes the daemon read its configuration again.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::Refusal;

/// Receives the outcome of reading the configuration again.
pub type Reloading = oneshot::Sender<Result<Changes, Refusal>>;

/// Accepts requests to read the configuration again.
pub type Reloads = mpsc::Sender<Reloading>;

/// The changes between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The channels that differ, by name.
    pub channels: Difference,
    /// The sinks that differ, by name.
    pub sinks: Difference,
    /// The tables and keys outside channels and sinks that differ.
    pub others: Vec<String>,
    /// The consequences for the lanes that were added or removed, one sentence per lane: from where delivery begins, or
    /// which cursor and events the state keeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<String>,
    /// Warnings that events like the recently verified ones will be rejected from now on, one sentence per reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The differences in a table of named things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Names that only the new table has.
    pub added: Vec<String>,
    /// Names that only the old table had.
    pub removed: Vec<String>,
    /// Names that both tables have, with different contents.
    pub changed: Vec<String>,
}

impl Changes {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Describes the changes for people, one sentence each.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        for (one, many, Difference { added, removed, changed }) in
            [("Channel", "Channels", &self.channels), ("Sink", "Sinks", &self.sinks)]
        {
            for (names, was, were) in [
                (added, "was added", "were added"),
                (removed, "was removed", "were removed"),
                (changed, "has changed", "have changed"),
            ] {
                sentences.extend(match &names[..] {
                    [] => None,
                    [name] => Some(format!("{one} {name} {was}.")),
                    [names @ .., last] => Some(format!("{many} {} and {last} {were}.", names.join(", "))),
                });
            }
        }
        sentences.extend(self.others.iter().map(|name| format!("{name} has changed.")));
        sentences.extend(self.lanes.iter().cloned());
        sentences
    }
}

impl fmt::Display for Changes {
    /// Formats the changes in one line. The mark before a name says whether it was added, removed or changed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (what, Difference { added, removed, changed }) in [("channels", &self.channels), ("sinks", &self.sinks)] {
            let marked = [("+", added), ("-", removed), ("~", changed)];
            let names = marked.iter().flat_map(|(mark, names)| names.iter().map(move |name| format!(" {mark}{name}")));
            let names: String = names.collect();
            if !names.is_empty() {
                parts.push(format!("{what}{names}"));
            }
        }
        parts.extend(self.others.iter().map(|name| format!("~{name}")));
        f.write_str(&parts.join(", "))
    }
}
