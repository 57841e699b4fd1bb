//! Adds channels of the organization while the daemon runs: `[discover]`.
//!
//! The service's list is read at the start, after each reload and then at intervals. New channels are written to
//! `discovered.json` in the state directory. This file belongs to the configuration: the daemon notices its change in the same way
//! as the change of a secret, and adds the channels in the same way as a reload.
//!
//! The channels are stored in a file because the list can be unavailable at a start: the service does not answer, or the key has
//! lost the scope for the list. The channels that were added earlier must run nevertheless: they have cursors, pending events and
//! dead letters, and the key may still have the scope for reading events. A local file is enough even if instances share a
//! database, because each instance finds the same channels. An instance without this file requests the list from the service, which
//! it needs for reading anyway.
//!
//! # Invariants
//!
//! * **Nothing is removed.** A channel that is no longer listed stays until the operator's configuration excludes it.
//! * **Remembered before it runs.** A channel is added only after the file with the channel is on disk.
//! * **No channel waits for the list.** An error is reported, and everything else continues.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::config::{ChannelPattern, Config};
use crate::daemon::assembly::Clients;
use api::{ApiError, Client, ListedChannel};
use ledger::StateError;
use ledger::store::discovered::{self, DiscoveredChannel};
use net::Chain;
use net::retry::{Retry, RetryPolicy};
use net::tasks::joined;
use operator::{Discovery, Operations};
use proof::event::ChannelId;
use record::printable;
use telemetry::ALWAYS;

/// The largest number of channels that are remembered. If the new channels would exceed it, none of them is added.
const MAX_DISCOVERED: usize = 10_000;

/// The settings in force.
#[derive(Clone)]
pub(in crate::daemon) struct DiscoveryPlan {
    client: Client,
    pattern: ChannelPattern,
    every: Duration,
    retry: RetryPolicy,
    directory: PathBuf,
    /// The channels that the operator's files configure.
    configured: BTreeSet<ChannelId>,
}

/// Why no channel could be added.
#[derive(Debug, thiserror::Error)]
enum DiscoveryError {
    #[error(transparent)]
    List(#[from] ApiError),
    #[error("the channels that were added before cannot be read")]
    Read(#[from] std::io::Error),
    #[error("the new channels cannot be remembered")]
    Write(#[from] StateError),
    #[error("more than {MAX_DISCOVERED} channels are selected: choose fewer with discover.channels")]
    TooMany,
}

impl DiscoveryPlan {
    /// Returns `None` if `[discover]` is not set.
    pub(in crate::daemon) fn of(config: &Config, clients: &Clients) -> Option<Self> {
        let discover = config.discover.as_ref()?;
        let client = clients.get(&discover.template.account)?;
        let configured = config.channels.iter().filter(|channel| !channel.discovered);
        Some(Self {
            client: client.clone(),
            pattern: discover.pattern.clone(),
            every: discover.every,
            retry: RetryPolicy { max_wait: discover.every, ..config.api.retry },
            directory: config.state.path.clone(),
            configured: configured.map(|channel| channel.channel.id).collect(),
        })
    }

    /// Requests the list, and remembers the new channels. Returns every remembered channel that the configuration selects.
    async fn look(&self) -> Result<BTreeSet<ChannelId>, DiscoveryError> {
        let mut listed = self.client.channels().await?;
        listed.retain(|channel| !channel.is_archived() && self.selects(channel.id(), channel.name.as_deref()));
        // Channels can have the same name. All instances must find them in the same order, so that they give them the same names.
        listed.sort_by_cached_key(|it| (it.created_at.as_ref().map(ToString::to_string), it.channel_id));
        let directory = self.directory.clone();
        let known = joined(spawn_blocking(move || remember(&directory, listed)).await).await?;
        let selected = known.into_iter().filter(|known| self.selects(known.channel_id, known.name.as_deref()));
        Ok(selected.map(|known| known.channel_id).collect())
    }

    fn selects(&self, id: ChannelId, name: Option<&str>) -> bool {
        self.pattern.selects(name) && !self.configured.contains(&id)
    }
}

/// Adds the listed channels to the file. Returns all channels in the file. Blocks.
fn remember(directory: &Path, listed: Vec<ListedChannel>) -> Result<Vec<DiscoveredChannel>, DiscoveryError> {
    let mut known = discovered::read(directory)?;
    let ids: BTreeSet<_> = known.iter().map(|known| known.channel_id).collect();
    let before = known.len();
    let new = listed.into_iter().filter(|listed| !ids.contains(&listed.id()));
    known.extend(new.map(|listed| DiscoveredChannel { channel_id: listed.id(), name: listed.name }));
    if known.len() > MAX_DISCOVERED {
        return Err(DiscoveryError::TooMany);
    }
    if known.len() > before {
        discovered::write(directory, &known)?;
    }
    for DiscoveredChannel { channel_id, name } in &known[before..] {
        let name = name.as_deref().map(printable);
        let name = name.as_deref();
        info!(target: ALWAYS, %channel_id, name, "a new channel of the organization was found: it is added");
    }
    Ok(known)
}

/// Requests the list according to the newest plan, and reports the outcome. Ends when the sender of the plans is dropped.
pub(in crate::daemon) async fn run(
    mut plans: watch::Receiver<Option<DiscoveryPlan>>,
    outcome: watch::Sender<Discovery>,
) {
    loop {
        let plan = plans.borrow_and_update().clone();
        let Some(plan) = plan else {
            outcome.send_replace(Discovery::default());
            if plans.changed().await.is_err() {
                return;
            }
            continue;
        };
        let mut retry = Retry::new(plan.retry);
        loop {
            let wait = match plan.look().await {
                Ok(channels) => {
                    retry.reset();
                    report(&outcome, Ok(channels));
                    plan.every
                }
                Err(error) => {
                    let asked = if let DiscoveryError::List(error) = &error { error.retry_after() } else { None };
                    report(&outcome, Err(&error));
                    retry.next_wait(asked)
                }
            };
            tokio::select! {
                changed = plans.changed() => if changed.is_err() { return } else { break },
                () = sleep(wait) => {}
            }
        }
    }
}

/// Logs an error once, until it changes.
fn report(outcome: &watch::Sender<Discovery>, looked: Result<BTreeSet<ChannelId>, &DiscoveryError>) {
    outcome.send_modify(|now| {
        now.has_asked = true;
        match looked {
            Ok(channels) => {
                if now.error.take().is_some() {
                    info!(target: ALWAYS, "the organization's channels can be listed again");
                }
                now.channels = channels;
            }
            Err(error) => {
                let error = Chain(error).to_string();
                if now.error.as_ref() != Some(&error) {
                    warn!(target: ALWAYS, error, "the organization's channels cannot be listed: no new channel is added");
                }
                now.error = Some(error);
            }
        }
    });
}

/// Waits until the list was read and its channels are in force. Returns whether this succeeded: `false` if the list cannot be read, or if
/// the configuration that contains its channels is rejected. Returns at once if `[discover]` is not set.
pub(in crate::daemon) async fn first_look(
    plans: &mut watch::Receiver<Option<DiscoveryPlan>>,
    operations: &mut watch::Receiver<Arc<Operations>>,
) -> bool {
    let Some(mut discovery) = operations.borrow().discovery.clone() else { return true };
    // A reload can change the selected channels, or remove `[discover]`, so each round looks at the newest values.
    loop {
        if plans.borrow_and_update().is_none() {
            return true;
        }
        let now = operations.borrow_and_update().clone();
        let in_force = now.channels.iter().map(|known| known.channel.id).collect();
        if let Some(has_all) = has_all(&discovery.borrow_and_update(), &in_force, now.rejected_config.is_some()) {
            return has_all;
        }
        let changed = tokio::select! {
            changed = plans.changed() => changed,
            changed = discovery.changed() => changed,
            changed = operations.changed() => changed,
        };
        if changed.is_err() {
            return true;
        }
    }
}

/// Whether the channels of the list are in force. `None` if this is not known yet.
fn has_all(discovery: &Discovery, in_force: &BTreeSet<ChannelId>, is_rejected: bool) -> Option<bool> {
    if !discovery.has_asked {
        return None;
    }
    let has_all = discovery.error.is_none() && discovery.channels.is_subset(in_force);
    (has_all || discovery.error.is_some() || is_rejected).then_some(has_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn listed(number: u128, name: &str) -> ListedChannel {
        let (channel_id, name) = (Uuid::from_u128(number), Some(name.to_owned()));
        ListedChannel { channel_id, name, description: None, status: None, created_at: None }
    }

    fn known(directory: &Path) -> Vec<(u128, Option<String>)> {
        let known = discovered::read(directory).unwrap().into_iter();
        known.map(|known| (known.channel_id.0.as_u128(), known.name)).collect()
    }

    #[test]
    fn found_channels_are_remembered_with_their_first_name_and_none_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        remember(directory.path(), vec![listed(2, "b"), listed(1, "a")]).unwrap();
        remember(directory.path(), vec![listed(2, "renamed"), listed(3, "c")]).unwrap();
        remember(directory.path(), Vec::new()).unwrap();
        let expected = [(2, "b"), (1, "a"), (3, "c")].map(|(id, name)| (id, Some(name.to_owned())));
        assert_eq!(known(directory.path()), expected);
    }

    #[test]
    fn too_many_channels_are_refused_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        remember(directory.path(), vec![listed(0, "a")]).unwrap();
        let many = (1..=MAX_DISCOVERED as u128).map(|number| listed(number, "x")).collect();
        assert!(matches!(remember(directory.path(), many), Err(DiscoveryError::TooMany)));
        assert_eq!(known(directory.path()).len(), 1);
    }

    #[test]
    fn the_channels_of_the_newest_list_must_be_in_force_and_an_error_or_a_rejection_ends_the_wait() {
        let ids = |numbers: &[u128]| -> BTreeSet<_> {
            numbers.iter().map(|number| ChannelId(Uuid::from_u128(*number))).collect()
        };
        let listed = |numbers: &[u128]| Discovery { has_asked: true, error: None, channels: ids(numbers) };
        let failed = Discovery { error: Some("HTTP 403".to_owned()), ..listed(&[]) };
        let cases: [(Discovery, &[u128], bool, Option<bool>); 7] = [
            (Discovery::default(), &[], false, None),
            (Discovery::default(), &[], true, None),
            (listed(&[1, 2]), &[1], false, None),
            (listed(&[1, 2]), &[1], true, Some(false)),
            (listed(&[1, 2]), &[1, 2, 3], false, Some(true)),
            (listed(&[1]), &[1], true, Some(true)),
            (failed, &[1], false, Some(false)),
        ];
        for (discovery, in_force, is_rejected, expected) in cases {
            assert_eq!(has_all(&discovery, &ids(in_force), is_rejected), expected, "{discovery:?} {in_force:?}");
        }
    }

    #[test]
    fn an_error_is_shown_until_the_list_can_be_read() {
        let outcome = watch::Sender::new(Discovery::default());
        let channels = BTreeSet::from([ChannelId(Uuid::from_u128(1))]);
        report(&outcome, Ok(channels.clone()));
        report(&outcome, Err(&DiscoveryError::TooMany));
        let now = outcome.borrow().clone();
        assert_eq!((now.has_asked, &now.channels), (true, &channels), "an error removes no channel");
        assert!(now.error.unwrap().contains("discover.channels"));
        report(&outcome, Ok(channels));
        assert_eq!(outcome.borrow().error, None);
    }
}
