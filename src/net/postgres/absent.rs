//! The address of a server in a program that was built without PostgreSQL. It only shows whether one is configured.

use std::convert::Infallible;
use std::str::FromStr;

use super::ServerSettings;

/// An address that is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    is_set: bool,
}

impl FromStr for Address {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { is_set: !text.is_empty() })
    }
}

impl ServerSettings {
    /// Whether an address is configured.
    pub fn has_host(&self) -> bool {
        self.config.is_set
    }

    /// A description for people.
    pub fn place(&self) -> String {
        "PostgreSQL".to_owned()
    }
}
