//! Logs which API keys the service refuses, and that a key expires soon.

use std::sync::Arc;
use std::time::Duration;

use api::KeyState;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use operator::{ApiKeys, Operations, expires_soon};
use telemetry::ALWAYS;

/// The interval between two checks whether a key expires soon.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Logs each refusal of a key once, if there are several keys, and each expiry once. Never ends. The notes about the
/// configuration have already reported a key that expires soon after the start.
pub(in crate::daemon) async fn report(mut operations: watch::Receiver<Arc<Operations>>) {
    let Some(first) = operations.borrow().api_keys.clone() else { return };
    let (mut known, mut warned_of) = (Vec::new(), due(&first));
    let mut last = first.keys;
    loop {
        let Some(current) = operations.borrow_and_update().api_keys.clone() else { return };
        if !Arc::ptr_eq(&current.keys, &last) {
            known.clear();
        }
        let mut states = current.keys.states();
        let now = states.borrow_and_update().clone();
        log_refusals(&known, &now, &current.keys.fingerprints());
        known = now;
        let due = due(&current);
        last = current.keys;
        if let Some(expires) = due.filter(|_| due != warned_of)
            && let Some(warning) = expires_soon(expires, Timestamp::now())
        {
            warn!(target: ALWAYS, warning, "an API key expires soon");
        }
        warned_of = due;
        tokio::select! {
            _ = states.changed() => {}
            changed = operations.changed() => if changed.is_err() { return },
            () = sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Returns when the key expires, if this is soon.
fn due(keys: &ApiKeys) -> Option<Timestamp> {
    keys.expires.filter(|expires| expires_soon(*expires, Timestamp::now()).is_some())
}

/// Logs the keys that are newly refused. The only key of a client is not logged: the channels report that they cannot be
/// read.
fn log_refusals(before: &[KeyState], now: &[KeyState], fingerprints: &[String]) {
    if now.len() < 2 {
        return;
    }
    let are_all_refused = now.iter().all(|state| state.is_refused);
    for (number, (state, fingerprint)) in now.iter().zip(fingerprints).enumerate() {
        let is_known = before.get(number).is_some_and(|before| before.refusals == state.refusals);
        if is_known || !state.is_refused {
            continue;
        }
        let (key, was_accepted) = (number + 1, state.was_accepted);
        if are_all_refused {
            warn!(target: ALWAYS, key, fingerprint, was_accepted, "the service refuses an API key, and no other key is left");
        } else {
            warn!(target: ALWAYS, key, fingerprint, was_accepted, "the service refuses an API key: another one is used");
        }
    }
}
