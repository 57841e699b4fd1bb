//! The path of a value or table in the configuration.

use std::fmt;

use figment::value::Value;

/// The prefix of channeld's environment variables.
pub(crate) const PREFIX: &str = "CHANNELD_";

/// The names from the root down to a value or table. The key of the root is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) Vec<String>);

impl Key {
    /// The key `name` of this table.
    pub(crate) fn at(&self, name: &str) -> Self {
        Self(self.0.iter().cloned().chain([name.to_owned()]).collect())
    }

    /// The value at this key in the root table.
    pub(crate) fn find_in<'v>(&self, values: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(values, |table, name| table.as_dict()?.get(name))
    }

    /// The last name in the key.
    pub(crate) fn name(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// The environment variable that sets the value at this key.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.0.join("__").replace('-', "_").to_ascii_uppercase())
    }
}

/// Formats the key as TOML.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|name| toml_edit::Key::new(name).to_string());
        f.write_str(&names.collect::<Vec<_>>().join("."))
    }
}

/// The form in which a name is compared with the name of a variable: in lower case, with `_` instead of `-`.
pub(crate) fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}
