//! The API keys of a client, and which of them the service accepts.
//!
//! # Invariants
//!
//! * **In order.** A request uses the first key that the service has not refused.
//! * **Without a gap.** A request whose key is refused is repeated with another key at once. It fails only after the service
//!   has refused every key, and it tries each key at most once.
//! * **A refusal is remembered,** until the keys are configured again or [`Keys::forget_refusals`] is called. If the service
//!   has refused every key, the next request tries all of them again.
//!
//! # Cancellation
//!
//! Dropping a request leaves the states as they are.

use std::cmp::Reverse;
use std::fmt;

use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use tokio::sync::watch;

use super::error::SettingsError;
use net::http;
use net::secret::Secret;

/// The largest number of keys of a client.
pub const MAX_KEYS: usize = 8;

/// The keys of a client, in the order of their use. All clones of the client share them.
pub struct Keys {
    keys: Vec<ApiKey>,
    states: watch::Sender<Vec<KeyState>>,
}

struct ApiKey {
    secret: Secret,
    authorization: HeaderValue,
}

/// The service's last answers about a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyState {
    /// The service has accepted the key.
    pub was_accepted: bool,
    /// The service has refused the key, and has not accepted it since.
    pub is_refused: bool,
    /// How often the key has become refused.
    pub refusals: u32,
}

/// The keys of one request: the key to send now, and the keys that were sent before.
pub(super) struct Attempt<'a> {
    keys: &'a Keys,
    now: usize,
    /// Whether the service had already refused the key when it was chosen.
    was_refused: bool,
    tried: [bool; MAX_KEYS],
}

impl Keys {
    pub(super) fn new(secrets: &[Secret]) -> Result<Self, SettingsError> {
        if secrets.is_empty() || secrets.iter().any(|secret| secret.expose().is_empty()) {
            return Err(SettingsError::NoKey);
        }
        if secrets.len() > MAX_KEYS {
            return Err(SettingsError::TooManyKeys);
        }
        let key = |secret: &Secret| {
            let authorization = http::sensitive(&format!("Apikey {}", secret.expose()))?;
            Some(ApiKey { secret: secret.clone(), authorization })
        };
        let keys: Option<Vec<_>> = secrets.iter().map(key).collect();
        let states = watch::Sender::new(vec![KeyState::default(); secrets.len()]);
        Ok(Self { keys: keys.ok_or(SettingsError::KeyCharacters)?, states })
    }

    /// The states of the keys, in the order of the keys. The receiver is notified of each change.
    pub fn states(&self) -> watch::Receiver<Vec<KeyState>> {
        self.states.subscribe()
    }

    /// The fingerprints of the keys, in the order of the keys.
    pub fn fingerprints(&self) -> Vec<String> {
        self.keys.iter().map(|key| key.secret.fingerprint()).collect()
    }

    /// Forgets which keys the service has refused, so that the first key is used again.
    pub fn forget_refusals(&self) {
        self.change(|states| states.iter_mut().for_each(|state| state.is_refused = false));
    }

    /// The texts that no error may contain. The longest is first, because it can contain another.
    pub(super) fn secrets(&self) -> Vec<&str> {
        let mut secrets: Vec<_> = self.keys.iter().map(|key| key.secret.expose()).collect();
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        secrets
    }

    /// Chooses the key of a new request.
    pub(super) fn attempt(&self) -> Attempt<'_> {
        let tried = [false; MAX_KEYS];
        let now = self.choose(tried).unwrap_or_default();
        Attempt { keys: self, now, was_refused: self.states.borrow()[now].is_refused, tried }
    }

    /// The first key that was neither tried nor refused. If no such key exists, the first key that was not tried.
    fn choose(&self, tried: [bool; MAX_KEYS]) -> Option<usize> {
        let states = self.states.borrow();
        let untried = || (0..states.len()).filter(|number| !tried[*number]);
        untried().find(|number| !states[*number].is_refused).or_else(|| untried().next())
    }

    fn change(&self, change: impl FnOnce(&mut [KeyState])) {
        self.states.send_if_modified(|states| {
            let before = states.clone();
            change(states);
            *states != before
        });
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.states.borrow().iter()).finish()
    }
}

impl Attempt<'_> {
    /// Adds the key to a request.
    pub(super) fn sign(&self, request: RequestBuilder) -> RequestBuilder {
        request.header(AUTHORIZATION, self.keys.keys[self.now].authorization.clone())
    }

    /// Records that the service accepted the key.
    pub(super) fn accepted(&self) {
        let Self { keys, now, was_refused, tried } = self;
        if !was_refused {
            // The service may have sent this answer before it refused the key. The refusal therefore stays recorded.
            if !keys.states.borrow()[*now].was_accepted {
                keys.change(|states| states[*now].was_accepted = true);
            }
            return;
        }
        // A refused key is chosen only if the service has refused all keys. If the service accepts the key now, its refusal
        // was temporary. The keys that were not tried may have been refused for the same cause, so their refusals are
        // forgotten.
        keys.change(|states| {
            states[*now].was_accepted = true;
            for (state, _) in states.iter_mut().zip(tried).filter(|(_, tried)| !**tried) {
                state.is_refused = false;
            }
        });
    }

    /// Records that the service refused the key, and chooses the next key. Returns `false` if every key was tried.
    pub(super) fn refused(&mut self) -> bool {
        self.keys.change(|states| {
            let state = &mut states[self.now];
            if !state.is_refused {
                (state.is_refused, state.refusals) = (true, state.refusals.saturating_add(1));
            }
        });
        self.tried[self.now] = true;
        let Some(next) = self.keys.choose(self.tried) else { return false };
        (self.now, self.was_refused) = (next, self.keys.states.borrow()[next].is_refused);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Keys {
        Keys::new(&names.iter().map(|name| Secret::new(*name)).collect::<Vec<_>>()).unwrap()
    }

    /// Makes one request to a service that accepts these keys. Returns the keys that were sent.
    fn request<'a>(keys: &'a Keys, accepts: &[&str]) -> Vec<&'a str> {
        let (mut attempt, mut sent) = (keys.attempt(), Vec::new());
        loop {
            let key = keys.keys[attempt.now].secret.expose();
            sent.push(key);
            if accepts.contains(&key) {
                attempt.accepted();
                return sent;
            }
            if !attempt.refused() {
                return sent;
            }
        }
    }

    fn refused(keys: &Keys) -> Vec<bool> {
        keys.states().borrow().iter().map(|state| state.is_refused).collect()
    }

    #[test]
    fn a_refused_key_is_replaced_within_the_request_and_not_used_again() {
        let keys = keys(&["a", "b", "c"]);
        assert_eq!(request(&keys, &["a", "b"]), ["a"]);
        assert_eq!(request(&keys, &["b"]), ["a", "b"]);
        assert_eq!(request(&keys, &["a", "b"]), ["b"], "the refusal is remembered");
        assert_eq!(request(&keys, &["c"]), ["b", "c"]);
        let states: Vec<_> = keys.states().borrow().iter().map(|it| (it.was_accepted, it.is_refused)).collect();
        assert_eq!(states, [(true, true), (true, true), (true, false)]);
        keys.forget_refusals();
        assert_eq!(request(&keys, &["a"]), ["a"]);
        assert_eq!(request(&keys, &["c"]), ["a", "b", "c"]);
        assert_eq!(keys.states().borrow().iter().map(|it| it.refusals).collect::<Vec<_>>(), [2, 2, 0]);
    }

    #[test]
    fn each_request_tries_every_key_once_while_all_are_refused() {
        let keys = keys(&["a", "b", "c"]);
        assert_eq!(request(&keys, &[]), ["a", "b", "c"]);
        assert_eq!(request(&keys, &[]), ["a", "b", "c"]);
        assert_eq!(refused(&keys), [true; 3]);
        assert_eq!(request(&keys, &["b", "c"]), ["a", "b"]);
        assert_eq!(refused(&keys), [true, false, false], "c was refused only together with b");
        assert_eq!(request(&keys, &["c"]), ["b", "c"]);
        assert_eq!(request(&keys, &["a"]), ["c", "a"], "a refused key is the last resort");
    }

    #[test]
    fn a_late_success_does_not_revoke_a_refusal() {
        let keys = keys(&["a", "b"]);
        let (early, mut late) = (keys.attempt(), keys.attempt());
        assert!(late.refused());
        let mut changes = keys.states();
        early.accepted();
        assert_eq!(refused(&keys), [true, false]);
        assert_eq!(request(&keys, &["b"]), ["b"]);
        changes.mark_unchanged();
        assert_eq!(request(&keys, &["b"]), ["b"]);
        assert!(!changes.has_changed().unwrap(), "an answer that changes nothing notifies nobody");
    }

    #[test]
    fn no_output_shows_a_key() {
        let keys = keys(&["hunter2"]);
        assert!(!format!("{keys:?}").contains("hunter2"));
        assert_eq!(keys.fingerprints(), ["f52fbd32"]);
        assert_eq!(self::keys(&["ab", "abc"]).secrets(), ["abc", "ab"], "no rest of a longer key stays visible");
    }
}
