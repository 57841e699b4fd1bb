//! Requests the names of networks and watchers from the service, in the background.
//!
//! # Invariants
//!
//! * **Never required.** If a key may not read the names, or the service has none, everything else works without them.
//! * **Few requests.** The list of networks is requested once a day, or ten minutes after an error that may pass. A watcher is
//!   requested at most once an hour, and at most one watcher of an account every few seconds. The requests wait for their turn
//!   like all others.
//! * **Accounts are independent.** An account whose key may not read the names, or that waits for its turn, delays no other account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
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

/// For how long no watcher of an account is requested after the service has refused a request of this account.
const REFUSED_FOR: Duration = Duration::from_secs(60 * 60);

/// The clients of the accounts for the background tasks. Their requests are counted, and wait for their turn.
pub(crate) fn counted(clients: &Clients, handles: &Handles) -> Clients {
    let counted = |(account, client): (&AccountName, &Client)| {
        let turns = Caller::occasional(&handles.turns.of(account));
        (account.clone(), client.clone().counted_by(ChannelMemory::of(&handles.memory), turns))
    };
    clients.iter().map(counted).collect()
}

/// Learns the names of the networks at the start, each day, and when the clients change.
pub(in crate::daemon) async fn networks(mut clients: watch::Receiver<Clients>) {
    loop {
        let current = clients.borrow_and_update().clone();
        let learned = join_all(current.iter().map(|(account, client)| learn_networks(account, client))).await;
        let wait = if learned.contains(&false) { NETWORKS_AGAIN } else { NETWORKS_EVERY };
        tokio::select! {
            changed = clients.changed() => if changed.is_err() { return },
            () = sleep(wait) => {}
        }
    }
}

/// Learns the names of the networks from one account. Returns `false` if this failed and can succeed soon.
async fn learn_networks(account: &AccountName, client: &Client) -> bool {
    match client.network_names().await {
        Ok(names) => {
            record::learn_networks(names.iter().map(|(chain_selector, name)| (*chain_selector, name.as_str())));
            true
        }
        Err(error) => {
            debug!(%account, error = %Chain(&error), "the names of networks are unknown");
            matches!(error, ApiError::Refused(_))
        }
    }
}

/// Requests the names of the watchers that the channels of this process have shown. A request of one account can wait long for its
/// turn, so the accounts do not wait for each other.
pub(crate) async fn watchers(mut clients: watch::Receiver<Clients>, operations: watch::Receiver<Arc<Operations>>) {
    let mut turns = interval(WATCHER_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut accounts = Accounts::default();
    let mut requests = FuturesUnordered::<BoxFuture<'static, (AccountName, bool)>>::new();
    loop {
        tokio::select! {
            Some((account, is_refused)) = requests.next() => {
                accounts.answered(account, is_refused, Instant::now());
                continue;
            }
            _ = turns.tick() => {}
        }
        if clients.has_changed().is_ok_and(|has_changed| has_changed) {
            clients.mark_unchanged();
            requests.clear();
            accounts = Accounts::default();
        }
        let operations = operations.borrow().clone();
        let now = Instant::now();
        let due = operations.channels.iter().filter(|known| accounts.may_ask(&known.account, now)).find_map(|known| {
            let handle = operations.handles.of(known.channel.id);
            let watcher = handle.board().watchers.next_due(now)?;
            Some((handle, known, watcher))
        });
        let Some((handle, known, watcher)) = due else { continue };
        let Some(client) = clients.borrow().get(&known.account).cloned() else { continue };
        let (account, channel) = (known.account.clone(), known.channel.id);
        accounts.asking.insert(account.clone());
        requests.push(Box::pin(async move {
            let answer = client.watcher(channel, watcher).await;
            let is_refused = matches!(answer, Err(ApiError::Refused(_)));
            match answer {
                Ok(description) => handle.board().watchers.named(watcher, description.name()),
                Err(error) => debug!(%channel, %watcher, error = %Chain(&error), "the name of a watcher is unknown"),
            }
            (account, is_refused)
        }));
    }
}

/// The accounts that are not asked for watchers now.
#[derive(Default)]
struct Accounts {
    /// The accounts whose last request is not answered yet.
    asking: BTreeSet<AccountName>,
    /// When the service refused the last request of an account.
    refused: BTreeMap<AccountName, Instant>,
}

impl Accounts {
    fn may_ask(&self, account: &AccountName, now: Instant) -> bool {
        let is_refused = self.refused.get(account).is_some_and(|at| now.duration_since(*at) < REFUSED_FOR);
        !is_refused && !self.asking.contains(account)
    }

    fn answered(&mut self, account: AccountName, is_refused: bool, now: Instant) {
        self.asking.remove(&account);
        if is_refused {
            self.refused.insert(account, now);
        } else {
            self.refused.remove(&account);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_is_refused_or_waits_for_an_answer_delays_no_other_account() {
        let [fund, treasury] = ["fund", "treasury"].map(AccountName::new);
        let (mut accounts, now) = (Accounts::default(), Instant::now());
        accounts.asking.insert(fund.clone());
        assert!(!accounts.may_ask(&fund, now) && accounts.may_ask(&treasury, now));
        accounts.answered(fund.clone(), true, now);
        assert!(!accounts.may_ask(&fund, now) && accounts.may_ask(&treasury, now));
        accounts.answered(treasury.clone(), false, now);
        assert!(!accounts.may_ask(&fund, now), "the answer to another account changes nothing");
        assert!(accounts.may_ask(&fund, now + REFUSED_FOR));
    }
}
