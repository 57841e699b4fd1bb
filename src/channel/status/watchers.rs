//! The watchers whose events a channel has delivered, with the names that the service gives them.
//!
//! # Invariants
//!
//! * **Bounded** by [`MAX_WATCHERS`].
//! * **A sample.** Only the last watcher event of each delivery is examined, because the examination parses the event again. A
//!   watcher whose events occur repeatedly is found soon.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use record::{Field, Record, printable};

/// The largest number of watchers of a channel.
const MAX_WATCHERS: usize = 100;

/// The largest number of characters of a name.
const MAX_NAME: usize = 100;

/// The time between two requests for the name of the same watcher. Many watchers have no name.
const ASK_AGAIN: Duration = Duration::from_secs(60 * 60);

/// A watcher whose events the channel has delivered since the daemon started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatcherStatus {
    /// The id, according to the service.
    pub watcher_id: Uuid,
    /// The name that the service gives the watcher. `None` if it has none, or if it is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// The name of the network in the watcher's events, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Box<str>>,
}

/// The watchers of a channel.
#[derive(Debug, Default)]
pub struct Watchers(BTreeMap<Uuid, KnownWatcher>);

#[derive(Debug, Default)]
struct KnownWatcher {
    name: Option<Box<str>>,
    network: Option<&'static str>,
    asked: Option<Instant>,
}

/// Returns the watcher of an event, and the name of the event's network.
pub(crate) fn watcher_of(record: &Record) -> Option<(Uuid, Option<&'static str>)> {
    Some((record.facts().get(Field::WatcherId)?.parse().ok()?, record.network))
}

impl Watchers {
    /// Notes a watcher and the network of one of its events.
    pub(crate) fn note(&mut self, id: Uuid, network: Option<&'static str>) {
        if self.0.len() < MAX_WATCHERS || self.0.contains_key(&id) {
            let known = self.0.entry(id).or_default();
            known.network = network.or(known.network);
        }
    }

    /// Returns a watcher whose name has to be requested now, and records the request.
    pub fn next_due(&mut self, now: Instant) -> Option<Uuid> {
        let is_due = |known: &KnownWatcher| known.asked.is_none_or(|at| now.duration_since(at) >= ASK_AGAIN);
        let (id, known) = self.0.iter_mut().find(|(_, known)| is_due(known))?;
        known.asked = Some(now);
        Some(*id)
    }

    /// Sets the name of a watcher.
    pub fn named(&mut self, id: Uuid, name: Option<String>) {
        let shown = |name: String| printable(name.trim()).chars().take(MAX_NAME).collect::<String>();
        if let Some(known) = self.0.get_mut(&id) {
            known.name = name.map(shown).filter(|name| !name.is_empty()).map(Into::into);
        }
    }

    pub(crate) fn statuses(&self) -> Vec<WatcherStatus> {
        let status = |(id, known): (&Uuid, &KnownWatcher)| WatcherStatus {
            watcher_id: *id,
            name: known.name.clone(),
            network: known.network.map(Into::into),
        };
        self.0.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Uuid = Uuid::from_u128(1);

    fn known<const N: usize>(ids: [Uuid; N]) -> Watchers {
        Watchers(ids.map(|id| (id, KnownWatcher::default())).into())
    }

    #[test]
    fn each_watcher_is_requested_once_an_hour() {
        let (mut watchers, now) = (known([ID, Uuid::from_u128(2)]), Instant::now());
        assert_eq!([0; 3].map(|_| watchers.next_due(now)), [Some(ID), Some(Uuid::from_u128(2)), None]);
        watchers.named(ID, None);
        assert_eq!(watchers.next_due(now + ASK_AGAIN.saturating_sub(Duration::from_millis(1))), None);
        assert_eq!(watchers.next_due(now + ASK_AGAIN), Some(ID));
    }

    #[test]
    fn a_name_is_shown_as_one_short_line_and_an_empty_one_is_none() {
        let mut watchers = known([ID]);
        for (name, shown) in [
            (Some("  dvp\n".to_owned()), Some("dvp".to_owned())),
            (Some("a\u{1b}b".to_owned()), Some("a\u{fffd}b".to_owned())),
            (Some("x".repeat(500)), Some("x".repeat(MAX_NAME))),
            (Some(" ".to_owned()), None),
            (None, None),
        ] {
            watchers.named(ID, name);
            assert_eq!(watchers.statuses()[0].name.as_deref(), shown.as_deref());
        }
        watchers.named(Uuid::from_u128(7), Some("unknown".to_owned()));
        assert_eq!(watchers.statuses().len(), 1);
    }
}
