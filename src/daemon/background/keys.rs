//! Logs which API keys the service refuses, and that a key expires soon.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use api::{AccountName, KeyState, Keys};
use futures_util::future::select_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use operator::{ApiKeys, Operations};
use telemetry::ALWAYS;

/// The time between two checks for a key that expires soon.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The facts about the keys of an account that were logged.
struct Logged {
    account: AccountName,
    keys: Arc<Keys>,
    states: Vec<KeyState>,
    /// The expiry about which the log contains a warning.
    expires: Option<Timestamp>,
}

/// Logs each expiry of a key once and, if an account has several keys, each refusal of a key once. Runs until the daemon ends.
/// A key that already expires soon at the start is not logged here, because the notes about the configuration have reported
/// it.
pub(in crate::daemon) async fn report(mut operations: watch::Receiver<Arc<Operations>>) {
    let mut logged: Vec<_> = operations.borrow().api_keys.iter().map(Logged::at_start).collect();
    loop {
        let current = operations.borrow_and_update().api_keys.clone();
        logged.retain(|logged| current.iter().any(|keys| keys.account == logged.account));
        let mut states: Vec<_> = current.iter().map(|keys| keys.keys.states()).collect();
        for (keys, states) in current.iter().zip(&mut states) {
            let at = logged.iter().position(|logged| logged.account == keys.account).unwrap_or_else(|| {
                logged.push(Logged::new(keys));
                logged.len() - 1
            });
            let now = states.borrow_and_update().clone();
            logged[at].follow(keys, now);
        }
        // `select_all` panics without futures.
        let change = async {
            match &mut states[..] {
                [] => pending().await,
                states => drop(select_all(states.iter_mut().map(|states| Box::pin(states.changed()))).await),
            }
        };
        tokio::select! {
            () = change => {}
            changed = operations.changed() => if changed.is_err() { return },
            () = sleep(LOOK_AGAIN) => {}
        }
    }
}

impl Logged {
    fn new(keys: &ApiKeys) -> Self {
        Self { account: keys.account.clone(), keys: keys.keys.clone(), states: Vec::new(), expires: None }
    }

    fn at_start(keys: &ApiKeys) -> Self {
        Self { expires: due(keys), ..Self::new(keys) }
    }

    /// Logs the differences to the current keys and their states.
    fn follow(&mut self, current: &ApiKeys, states: Vec<KeyState>) {
        if !Arc::ptr_eq(&current.keys, &self.keys) {
            self.states.clear();
        }
        self.log_refusals(&states, &current.keys.fingerprints());
        let due = due(current);
        if due != self.expires
            && let Some(warning) = current.expires_soon(Timestamp::now())
        {
            warn!(target: ALWAYS, warning, "an API key expires soon");
        }
        (self.keys, self.states, self.expires) = (current.keys.clone(), states, due);
    }

    /// Logs the keys that are newly refused. If an account has only one key, nothing is logged here: the channels report that
    /// they cannot be read.
    fn log_refusals(&self, now: &[KeyState], fingerprints: &[String]) {
        if now.len() < 2 {
            return;
        }
        let are_all_refused = now.iter().all(|state| state.is_refused);
        let account = self.account.name();
        for (number, (state, fingerprint)) in now.iter().zip(fingerprints).enumerate() {
            let is_known = self.states.get(number).is_some_and(|before| before.refusals == state.refusals);
            if is_known || !state.is_refused {
                continue;
            }
            let (key, was_accepted) = (number + 1, state.was_accepted);
            if are_all_refused {
                warn!(target: ALWAYS, account, key, fingerprint, was_accepted, "the service refuses an API key, and no other key is left");
            } else {
                warn!(target: ALWAYS, account, key, fingerprint, was_accepted, "the service refuses an API key: another one is used");
            }
        }
    }
}

/// Returns when the key expires, if this is soon.
fn due(keys: &ApiKeys) -> Option<Timestamp> {
    keys.expires.filter(|_| keys.expires_soon(Timestamp::now()).is_some())
}
