//! What is wrong with a configuration: every mistake at once, each with its key, its place and a way out.
//!
//! # Invariants
//!
//! * **No values.** A problem says which rule a value breaks and never quotes what could be a secret.

use std::fmt;

use serde::Serialize;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The key, as it would stand in a file: `channels.settlements.id`; or `--config` for the file itself.
    pub key: String,
    /// The file, environment variable or flag the value came from; `None` where there is no value.
    #[serde(rename = "source")]
    pub origin: Option<String>,
    /// What is wrong, and what to do about it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => write!(f, "{} ({origin}): {}", self.key, self.message),
            None => write!(f, "{}: {}", self.key, self.message),
        }
    }
}

/// Everything that is wrong with a configuration. Never empty; `Display` gives a line to each problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Vec<Problem>);

impl ConfigError {
    pub(super) fn new(problems: Vec<Problem>) -> Self {
        debug_assert!(!problems.is_empty(), "a configuration fails for a reason");
        Self(problems)
    }

    /// The problems, those of one section together.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigError {}
