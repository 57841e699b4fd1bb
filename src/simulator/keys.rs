//! The API keys that the service accepts, and the options that withdraw them.

use std::str::FromStr;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use jiff::SignedDuration;

use crate::fault::Route;

/// The keys. A revoked key stays in the list, so that the numbers of the others do not change.
pub(crate) struct AcceptedKeys(RwLock<Vec<AcceptedKey>>);

struct AcceptedKey {
    text: String,
    is_revoked: bool,
    /// The routes for which the key lacks the scope.
    denied: Vec<Route>,
}

/// Whether a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// The key is unknown or revoked: 401.
    Unknown,
    /// The key lacks the scope for the route: 403.
    Denied,
}

impl AcceptedKey {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_revoked: false, denied: Vec::new() }
    }
}

impl AcceptedKeys {
    pub(crate) fn new(texts: Vec<String>, deny: &[Deny]) -> Self {
        let mut keys: Vec<_> = texts.into_iter().map(AcceptedKey::new).collect();
        for Deny { number, route } in deny {
            if let Some(key) = keys.get_mut(number - 1) {
                key.denied.push(*route);
            }
        }
        Self(RwLock::new(keys))
    }

    pub(crate) fn admission(&self, given: &str, route: Route) -> Admission {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match keys.iter().find(|key| key.text == given && !key.is_revoked) {
            None => Admission::Unknown,
            Some(key) if key.denied.contains(&route) => Admission::Denied,
            Some(_) => Admission::Admitted,
        }
    }

    /// Accepts only this key from now on.
    pub(crate) fn set(&self, key: &str) {
        *self.write() = vec![AcceptedKey::new(key)];
    }

    pub(crate) fn revoke(&self, text: &str) {
        self.write().iter_mut().filter(|key| key.text == text).for_each(|key| key.is_revoked = true);
    }

    /// Revokes the key with this number, from 1.
    pub(crate) fn revoke_number(&self, number: usize) {
        if let Some(key) = self.write().get_mut(number - 1) {
            key.is_revoked = true;
        }
    }

    pub(crate) fn deny(&self, text: &str, route: Route) {
        self.write().iter_mut().filter(|key| key.text == text).for_each(|key| key.denied.push(route));
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<AcceptedKey>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An API key that is revoked, written as `1:30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevokeKey {
    /// The number of the key, from 1.
    pub number: usize,
    /// The time between the start of the service and the revocation.
    pub after: Duration,
}

/// An API key that lacks the scope for a route, written as `1:watcher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deny {
    /// The number of the key, from 1.
    pub number: usize,
    /// The route.
    pub route: Route,
}

/// The text does not begin with the number of a key, or the rest is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseKeyError {
    /// For [`RevokeKey`].
    #[error("expected the number of a key, from 1, and a duration, such as 1:30s")]
    Duration,
    /// For [`Deny`].
    #[error("expected the number of a key, from 1, and poll, search, event, channel or watcher, such as 1:watcher")]
    Route,
}

/// Splits a text into the number of a key and the rest.
fn numbered(text: &str) -> Option<(usize, &str)> {
    let (number, rest) = text.split_once(':')?;
    Some((number.parse().ok().filter(|number| *number > 0)?, rest))
}

impl FromStr for RevokeKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, after) = numbered(text).ok_or(ParseKeyError::Duration)?;
        let after = after.parse::<SignedDuration>().ok().and_then(|after| Duration::try_from(after).ok());
        Ok(Self { number, after: after.ok_or(ParseKeyError::Duration)? })
    }
}

impl FromStr for Deny {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, route) = numbered(text).ok_or(ParseKeyError::Route)?;
        let route = match route {
            "poll" => Route::Poll,
            "search" => Route::Search,
            "event" => Route::Event,
            "channel" => Route::Channel,
            "watcher" => Route::Watcher,
            _ => return Err(ParseKeyError::Route),
        };
        Ok(Self { number, route })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_names_a_key_by_its_number() {
        assert_eq!("2:30s".parse(), Ok(RevokeKey { number: 2, after: Duration::from_secs(30) }));
        assert_eq!("0:30s".parse::<RevokeKey>(), Err(ParseKeyError::Duration));
        assert_eq!("1:watcher".parse(), Ok(Deny { number: 1, route: Route::Watcher }));
        for text in ["0:watcher", "1:health", "watcher", ""] {
            assert_eq!(text.parse::<Deny>(), Err(ParseKeyError::Route), "{text}");
        }
    }
}
