//! The names of accounts.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of an account: an organization at the service, with its own API keys and its own rate limit. The default
/// account has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccountName(Option<Arc<str>>);

impl AccountName {
    /// The account with this name.
    pub fn new(name: &str) -> Self {
        Self(Some(name.into()))
    }

    /// The name. `None` for the default account.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether this is the default account.
    pub fn is_default(&self) -> bool {
        self.0.is_none()
    }
}

/// The table of the configuration that contains the API keys of the account.
impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "accounts.{name}"),
            None => f.write_str("api"),
        }
    }
}
