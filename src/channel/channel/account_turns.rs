//! The turns of the requests to the service. Each account has its own turns, because the service limits each organization
//! separately.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use api::AccountName;
use net::tasks::lock;
use net::turns::Turns;

/// The turns of each account.
#[derive(Debug, Default)]
pub struct AccountTurns(Mutex<TurnsByAccount>);

#[derive(Debug, Default)]
struct TurnsByAccount {
    each: BTreeMap<AccountName, Arc<Turns>>,
    /// The number of processes that share the rate of each account, or zero if this is unknown.
    processes: usize,
}

impl AccountTurns {
    /// Returns the turns of an account. Every call for the account returns the same turns.
    pub fn of(&self, account: &AccountName) -> Arc<Turns> {
        let TurnsByAccount { each, processes } = &mut *lock(&self.0);
        let new = || {
            let turns = Turns::default();
            turns.share_among(*processes);
            Arc::new(turns)
        };
        each.entry(account.clone()).or_insert_with(new).clone()
    }

    /// Divides the rate of each account among this number of processes.
    pub fn share_among(&self, processes: usize) {
        let mut state = lock(&self.0);
        state.processes = processes;
        state.each.values().for_each(|turns| turns.share_among(processes));
    }

    /// Forgets the accounts that are not in the set. The default account stays.
    pub fn keep(&self, accounts: &BTreeSet<AccountName>) {
        lock(&self.0).each.retain(|account, _| account.is_default() || accounts.contains(account));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use proof::event::ChannelId;

    use super::*;
    use crate::channel::controls::Handles;
    use net::turns::Rate;

    #[tokio::test(start_paused = true)]
    async fn an_account_at_its_limit_delays_only_its_own_channels() {
        let handles = Handles::default();
        let [fund, treasury] = ["fund", "treasury"].map(AccountName::new);
        let per_hour = Some(Rate { requests: 1, per: Duration::from_secs(3600) });
        handles.turns.of(&fund).limit(per_hour);
        let channel = |id: u128, account: &AccountName| {
            handles.of(ChannelId(uuid::Uuid::from_u128(id))).take_part_in(&handles.turns.of(account))
        };
        let (first, second, other) = (channel(1, &fund), channel(2, &fund), channel(3, &treasury));
        first.turn().await;
        assert!(second.turn().now_or_never().is_none(), "the account is at its limit");
        assert!(other.turn().now_or_never().is_some());
        // The channel moves to the other account.
        let moved = channel(2, &treasury);
        assert!(moved.turn().now_or_never().is_some());
        assert!(Arc::ptr_eq(&moved, &handles.of(ChannelId(uuid::Uuid::from_u128(2))).turns()));
        assert!(Arc::ptr_eq(&moved, &channel(2, &treasury)), "nothing changes");
    }

    #[tokio::test(start_paused = true)]
    async fn each_account_shares_its_rate_with_the_other_processes() {
        let turns = AccountTurns::default();
        turns.share_among(4);
        let fund = AccountName::new("fund");
        turns.of(&fund).limit(Some(Rate { requests: 1, per: Duration::from_secs(1) }));
        let caller = net::turns::Caller::of(&turns.of(&fund));
        caller.turn().await;
        let began = tokio::time::Instant::now();
        caller.turn().await;
        assert_eq!(began.elapsed().as_secs(), 4);
        turns.keep(&BTreeSet::new());
        assert!(!caller.is_of(&turns.of(&fund)), "the account is new");
    }
}
