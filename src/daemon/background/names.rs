//! Requests the names of networks and watchers from the service, in the background.
//!
//! # Invariants
//!
//! * **Never required.** If a key may not read the names, or the service has none, everything else works without them.
//! * **Few requests.** The list of networks is requested once a day, or ten minutes after an error that may pass. A watcher is
//!   requested at most once an hour, and at most one watcher every few seconds. The requests wait for their turn like all
//!   others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::debug;

use crate::daemon::assembly::Clients;
use api::{AccountName, ApiError, Client};
use channel::Handles;
use net::Chain;
use net::memory::ChannelMemory;
use net::turns::Caller;
use operator::Operations;

/// How often the list of networks is requested.
const NETWORKS_EVERY: Duration = Duration::from_secs(24 * 60 * 60);

/// The wait after an error that may pass.
const NETWORKS_AGAIN: Duration = Duration::from_secs(10 * 60);

/// The time between two requests for watchers.
const WATCHER_EVERY: Duration = Duration::from_secs(2);

/// For how long no watcher is requested after the service has refused a request.
const REFUSED_FOR: Duration = Duration::from_secs(60 * 60);

/// The clients of the accounts. Their requests are counted, and wait for their turn.
pub(in crate::daemon) fn counted(clients: &Clients, handles: &Handles) -> Clients {
    let counted = |(account, client): (&AccountName, &Client)| {
        let turns = Caller::of(&handles.turns.of(account));
        (account.clone(), client.clone().counted_by(ChannelMemory::of(&handles.memory), turns))
    };
    clients.iter().map(counted).collect()
}

/// Learns the names of the networks at the start, each day, and when the clients change.
pub(in crate::daemon) async fn networks(mut clients: watch::Receiver<Clients>) {
    loop {
        let current = clients.borrow_and_update().clone();
        let mut wait = NETWORKS_EVERY;
        for (account, client) in &current {
            match client.network_names().await {
                Ok(names) => {
                    record::learn_networks(names.iter().map(|(chain_selector, name)| (*chain_selector, name.as_str())));
                }
                Err(error) => {
                    debug!(%account, error = %Chain(&error), "the names of networks are unknown");
                    if !matches!(error, ApiError::Refused(_)) {
                        wait = NETWORKS_AGAIN;
                    }
                }
            }
        }
        tokio::select! {
            changed = clients.changed() => if changed.is_err() { return },
            () = sleep(wait) => {}
        }
    }
}

/// Requests the names of the watchers that the channels of this process have shown.
pub(in crate::daemon) async fn watchers(
    mut clients: watch::Receiver<Clients>,
    operations: watch::Receiver<Arc<Operations>>,
) {
    let mut turns = interval(WATCHER_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused: Option<Instant> = None;
    loop {
        turns.tick().await;
        if refused.is_some_and(|at| at.elapsed() < REFUSED_FOR) && !clients.has_changed().is_ok_and(|changed| changed) {
            continue;
        }
        let operations = operations.borrow().clone();
        let due = operations.channels.iter().find_map(|known| {
            let handle = operations.handles.of(known.channel.id);
            let watcher = handle.board().watchers.next_due(Instant::now())?;
            Some((handle, known, watcher))
        });
        let Some((handle, known, watcher)) = due else { continue };
        let client = clients.borrow_and_update().get(&known.account).cloned();
        let (Some(client), channel) = (client, known.channel.id) else { continue };
        match client.watcher(channel, watcher).await {
            Ok(description) => {
                refused = None;
                handle.board().watchers.named(watcher, description.name());
            }
            Err(error) => {
                debug!(%channel, %watcher, error = %Chain(&error), "the name of a watcher is unknown");
                refused = matches!(error, ApiError::Refused(_)).then(Instant::now);
            }
        }
    }
}
