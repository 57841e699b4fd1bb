//! Reading the configuration again while the daemon runs, and what that changes.

use std::fmt;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::api::Reload;
use super::{Operations, Refusal};

/// Where the outcome of reading the configuration again is answered.
pub type Reloading = oneshot::Sender<Result<Changes, Refusal>>;

/// Where to ask for the configuration to be read again.
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
    /// What was verified lately and will be rejected from now on, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
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
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// For people, a sentence each.
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
        sentences
    }
}

impl fmt::Display for Changes {
    /// In one line: what a name begins with says what became of it.
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

impl Operations {
    /// Where this fails, everything goes on as before.
    pub(super) async fn reload(&self, _: &Reload) -> Result<Changes, Refusal> {
        let offline = || Refusal::Failed("no daemon runs, and the next one reads the configuration anyway".to_owned());
        let (_, reloads) = self.daemon.as_ref().ok_or_else(offline)?;
        let ending = || Refusal::Failed("the daemon is ending: it does not read the configuration again".to_owned());
        let (reply, answer) = oneshot::channel();
        reloads.send(reply).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?
    }
}
