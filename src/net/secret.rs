//! A text that is never shown.
//!
//! # Invariants
//!
//! * **Silent.** `Debug`, `Display` and `Serialize` of a [`Secret`] do not reveal it; only [`Secret::expose`] does.

use std::fmt;

use serde::{Serialize, Serializer};

const SHOWN: &str = "[secret]";

/// A text that no log, error or output may contain.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the code that must use it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHOWN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(SHOWN)
    }
}

#[cfg(test)]
mod tests {
    //! A secret stays hidden in every output format.

    use super::*;

    #[test]
    fn debug_output_hides_a_secret() {
        let secret = Secret::new("hunter2");
        let json = serde_json::to_string(&secret).expect("a text is JSON");
        for shown in [format!("{secret:?} {secret:#?}"), format!("{secret}"), json] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(secret.expose(), "hunter2");
    }
}
