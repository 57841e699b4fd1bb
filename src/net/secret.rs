//! A text that is never shown.
//!
//! # Invariants
//!
//! * **Silent.** `Debug`, `Display` and `Serialize` of a [`Secret`] do not reveal it; only [`Secret::expose`] does. A
//!   [fingerprint](Secret::fingerprint) identifies it.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

const SHOWN: &str = "[secret]";

/// A text that no log, error or output may contain.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The first eight hexadecimal digits of the text's SHA-256 hash. They tell an operator which of several secrets is in use,
    /// and do not reveal it.
    pub fn fingerprint(&self) -> String {
        Sha256::digest(self.0.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
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
        // printf %s hunter2 | sha256sum
        assert_eq!(secret.fingerprint(), "f52fbd32");
    }
}
