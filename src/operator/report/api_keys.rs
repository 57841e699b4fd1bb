//! The API keys of the daemon's client: which of them the service refuses, and when the key in use expires. Neither makes
//! the daemon unready while another key works.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use api::{KeyState, Keys};

/// How long before a key expires the daemon warns.
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The API keys of a daemon.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// The keys of the client that all channels use.
    pub keys: Arc<Keys>,
    /// When the key in use expires, if the operator has configured this.
    pub expires: Option<Timestamp>,
}

/// The status of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyStatus {
    /// The beginning of the key's hash, which `channeld check --connect` prints too.
    pub fingerprint: String,
    /// Whether the service has accepted the key since it was configured.
    pub was_accepted: bool,
    /// Whether the service refuses the key.
    pub is_refused: bool,
}

impl ApiKeys {
    pub(super) fn statuses(&self) -> Vec<ApiKeyStatus> {
        let states = self.keys.states();
        let status = |(fingerprint, state): (String, &KeyState)| {
            let KeyState { was_accepted, is_refused, .. } = *state;
            ApiKeyStatus { fingerprint, was_accepted, is_refused }
        };
        self.keys.fingerprints().into_iter().zip(states.borrow().iter()).map(status).collect()
    }
}

/// Returns a warning for each key that is refused although another key works, and for a key that expires soon. If every
/// key is refused, the channels report it.
pub(super) fn warnings(keys: &[ApiKeyStatus], expires: Option<Timestamp>, now: Timestamp) -> Vec<String> {
    let mut warnings = Vec::new();
    if keys.iter().any(|key| !key.is_refused) {
        for (key, number) in keys.iter().zip(1..).filter(|(key, _)| key.is_refused) {
            let why =
                if key.was_accepted { "has expired or was revoked" } else { "is wrong, has expired or was revoked" };
            warnings.push(format!(
                "the service refuses API key {number} of {} (fingerprint {}), which {why}: another key is used; put a new key into its file",
                keys.len(),
                key.fingerprint
            ));
        }
    }
    warnings.extend(expires.and_then(|expires| expires_soon(expires, now)));
    warnings
}

/// Returns a warning if a key expires within seven days.
pub fn expires_soon(expires: Timestamp, now: Timestamp) -> Option<String> {
    let left = expires.duration_since(now);
    if left > WARN_BEFORE {
        return None;
    }
    let when = match left.as_hours() {
        _ if left.is_zero() || left.is_negative() => format!("expired at {expires}"),
        hours @ ..48 => format!("expires in {hours} h, at {expires}"),
        hours => format!("expires in {} days, at {expires}", hours / 24),
    };
    Some(format!("according to api.api_key_expires, the API key {when}: replace the key, and then change this date"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn key(was_accepted: bool, is_refused: bool) -> ApiKeyStatus {
        ApiKeyStatus { fingerprint: "f52fbd32".to_owned(), was_accepted, is_refused }
    }

    #[test]
    fn a_key_that_expires_within_seven_days_is_a_warning() {
        let expires = at("2027-03-01T00:00:00Z");
        for (now, says) in [
            ("2027-02-21T23:59:59Z", None),
            ("2027-02-22T00:00:00Z", Some("expires in 7 days, at 2027-03-01T00:00:00Z")),
            ("2027-02-26T12:00:00Z", Some("expires in 2 days")),
            ("2027-02-28T12:30:00Z", Some("expires in 11 h")),
            ("2027-03-01T00:00:00Z", Some("expired at 2027-03-01T00:00:00Z")),
            ("2027-05-01T00:00:00Z", Some("expired at 2027-03-01T00:00:00Z")),
        ] {
            let said = warnings(&[key(true, false)], Some(expires), at(now));
            assert_eq!(said.len(), usize::from(says.is_some()), "{now}: {said:?}");
            assert!(says.is_none_or(|says| said[0].contains(says)), "{now}: {said:?}");
        }
        assert_eq!(warnings(&[key(true, false)], None, expires), <[String; 0]>::default());
    }

    #[test]
    fn a_refused_key_is_a_warning_while_another_key_works() {
        let said = |keys: &[ApiKeyStatus]| warnings(keys, None, Timestamp::UNIX_EPOCH);
        let both = said(&[key(true, true), key(false, true), key(true, false)]);
        assert_eq!(both.len(), 2);
        assert!(
            both[0].contains("API key 1 of 3 (fingerprint f52fbd32), which has expired or was revoked"),
            "{both:?}"
        );
        assert!(both[1].contains("API key 2 of 3 (fingerprint f52fbd32), which is wrong, "), "{both:?}");
        for refused in [&[key(true, true), key(true, true)][..], &[key(true, true)], &[]] {
            assert_eq!(said(refused), <[String; 0]>::default(), "the channels report it");
        }
    }
}
