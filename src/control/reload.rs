//! Reading the configuration again while the daemon runs, and what that changes.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::{Answer, Operations, Refusal};
use crate::config::{self, Config};

/// Somebody who waits for the configuration to be read again, and for what that has changed.
pub type Reloading = oneshot::Sender<Result<Changes, Refusal>>;

/// Where to ask for it.
pub type Reloads = mpsc::Sender<Reloading>;

/// What another configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Channels, by name.
    pub channels: Difference,
    /// Sinks, by name.
    pub sinks: Difference,
    /// Of the rest, the tables and keys in which something is different.
    pub others: Vec<String>,
}

/// What is different in a table of named things.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// There, and was not.
    pub added: Vec<String>,
    /// Was there, and is not.
    pub removed: Vec<String>,
    /// There, as before, but not the same.
    pub changed: Vec<String>,
}

impl Changes {
    /// Between two configurations.
    #[must_use]
    pub fn between(before: &Config, after: &Config) -> Self {
        let channels = |config: &Config| -> BTreeMap<String, config::Channel> {
            config.channels.iter().map(|channel| (channel.channel.name.to_string(), channel.clone())).collect()
        };
        let others = [
            ("api", before.api != after.api),
            ("log", before.log != after.log),
            ("shutdown_grace", before.shutdown_grace != after.shutdown_grace),
        ];
        Self {
            channels: Difference::between(&channels(before), &channels(after)),
            sinks: Difference::between(&before.sinks, &after.sinks),
            others: others.iter().filter(|(_, changed)| *changed).map(|(name, _)| (*name).to_owned()).collect(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Difference {
    fn between<T: PartialEq>(before: &BTreeMap<String, T>, after: &BTreeMap<String, T>) -> Self {
        let missing_in = |those: &BTreeMap<String, T>, these: &BTreeMap<String, T>| {
            these.keys().filter(|name| !those.contains_key(*name)).cloned().collect()
        };
        let changed = after.iter().filter(|(name, one)| before.get(*name).is_some_and(|other| other != *one));
        Self {
            added: missing_in(before, after),
            removed: missing_in(after, before),
            changed: changed.map(|(name, _)| name.clone()).collect(),
        }
    }
}

impl fmt::Display for Changes {
    /// In one line: what a name begins with says what became of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (what, Difference { added, removed, changed }) in [("channels", &self.channels), ("sinks", &self.sinks)] {
            let marked = [("+", added), ("-", removed), ("~", changed)];
            let names: Vec<_> =
                marked.iter().flat_map(|(mark, names)| names.iter().map(move |name| format!("{mark}{name}"))).collect();
            if !names.is_empty() {
                parts.push(format!("{what} {}", names.join(" ")));
            }
        }
        parts.extend(self.others.iter().map(|name| format!("~{name}")));
        f.write_str(&parts.join(", "))
    }
}

impl Operations {
    pub(super) async fn reload(&self) -> Result<Answer, Refusal> {
        let Some(reloads) = &self.reloads else {
            return Err(Refusal::Failed("no daemon runs, and the next one reads the configuration anyway".to_owned()));
        };
        let ending = || Refusal::Failed("the daemon is ending: it does not read the configuration again".to_owned());
        let (reply, answer) = oneshot::channel();
        reloads.send(reply).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?.map(Answer::Reloaded)
    }
}
