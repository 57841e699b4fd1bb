//! The API keys of the daemon's accounts: which of them the service refuses, and when the key in use expires. Neither makes
//! the daemon unready while another key works.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use api::{AccountName, KeyState, Keys};

/// How long before a key expires the daemon warns.
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The API keys of an account of a daemon.
#[derive(Clone, Debug)]
pub struct ApiKeys {
    /// The account.
    pub account: AccountName,
    /// The keys of the client that the channels of the account use.
    pub keys: Arc<Keys>,
    /// When the key in use expires, if the operator has configured this.
    pub expires: Option<Timestamp>,
}

/// The status of an API key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyStatus {
    /// The account of the key. Not shown for the default account.
    #[serde(default, skip_serializing_if = "AccountName::is_default")]
    pub account: AccountName,
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
            let account = self.account.clone();
            ApiKeyStatus { account, fingerprint, was_accepted, is_refused }
        };
        self.keys.fingerprints().into_iter().zip(states.borrow().iter()).map(status).collect()
    }

    pub(super) fn warnings(&self, now: Timestamp) -> Vec<String> {
        warnings(&self.account, &self.statuses(), self.expires, now)
    }

    /// Returns a warning if the key in use expires within seven days.
    pub fn expires_soon(&self, now: Timestamp) -> Option<String> {
        expires_soon(&expiry_key(&self.account), self.expires?, now)
    }
}

/// The key of the configuration that tells when an API key expires.
fn expiry_key(account: &AccountName) -> String {
    format!("{account}.api_key_expires")
}

/// Returns a warning for each refused key while another key works, and for a key that expires soon. If every key is
/// refused, the channels report it.
fn warnings(account: &AccountName, keys: &[ApiKeyStatus], expires: Option<Timestamp>, now: Timestamp) -> Vec<String> {
    let mut warnings = Vec::new();
    let of_account = account.name().map_or_else(String::new, |name| format!(" of account {name}"));
    if keys.iter().any(|key| !key.is_refused) {
        for (key, number) in keys.iter().zip(1..).filter(|(key, _)| key.is_refused) {
            let why =
                if key.was_accepted { "has expired or was revoked" } else { "is wrong, has expired or was revoked" };
            warnings.push(format!(
                "the service refuses API key {number} of {}{of_account} (fingerprint {}), which {why}: another key is used; put a new key into its file",
                keys.len(),
                key.fingerprint
            ));
        }
    }
    warnings.extend(expires.and_then(|expires| expires_soon(&expiry_key(account), expires, now)));
    warnings
}

/// Returns a warning if a key expires within seven days, according to this key of the configuration.
pub fn expires_soon(key: &str, expires: Timestamp, now: Timestamp) -> Option<String> {
    let left = expires.duration_since(now);
    if left > WARN_BEFORE {
        return None;
    }
    let when = match left.as_hours() {
        _ if left.is_zero() || left.is_negative() => format!("expired at {expires}"),
        hours @ ..48 => format!("expires in {hours} h, at {expires}"),
        hours => format!("expires in {} days, at {expires}", hours / 24),
    };
    Some(format!("according to {key}, the API key {when}: replace the key, and then change this date"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn key(was_accepted: bool, is_refused: bool) -> ApiKeyStatus {
        ApiKeyStatus { account: AccountName::default(), fingerprint: "f52fbd32".to_owned(), was_accepted, is_refused }
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
            let said = warnings(&AccountName::default(), &[key(true, false)], Some(expires), at(now));
            assert_eq!(said.len(), usize::from(says.is_some()), "{now}: {said:?}");
            assert!(says.is_none_or(|says| said[0].contains(says)), "{now}: {said:?}");
        }
        let none = warnings(&AccountName::default(), &[key(true, false)], None, expires);
        assert_eq!(none, <[String; 0]>::default());
        let of_account = warnings(&AccountName::new("fund"), &[], Some(expires), expires);
        assert!(of_account[0].starts_with("according to accounts.fund.api_key_expires, "), "{of_account:?}");
    }

    #[test]
    fn a_refused_key_is_a_warning_while_another_key_works() {
        let said = |keys: &[ApiKeyStatus]| warnings(&AccountName::default(), keys, None, Timestamp::UNIX_EPOCH);
        let both = said(&[key(true, true), key(false, true), key(true, false)]);
        assert_eq!(both.len(), 2);
        assert!(
            both[0].contains("API key 1 of 3 (fingerprint f52fbd32), which has expired or was revoked"),
            "{both:?}"
        );
        assert!(both[1].contains("API key 2 of 3 (fingerprint f52fbd32), which is wrong, "), "{both:?}");
        let of_account = [key(true, true), key(true, false)];
        let of_account = warnings(&AccountName::new("fund"), &of_account, None, Timestamp::UNIX_EPOCH);
        assert!(of_account[0].contains("API key 1 of 2 of account fund (fingerprint"), "{of_account:?}");
        for refused in [&[key(true, true), key(true, true)][..], &[key(true, true)], &[]] {
            assert_eq!(said(refused), <[String; 0]>::default(), "the channels report it");
        }
    }
}
