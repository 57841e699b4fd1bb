//! The problems of a configuration: all mistakes at once, each with its key, its origin and a solution.
//!
//! # Invariants
//!
//! * **No values.** A problem says which rule a value breaks. It never quotes a value that could be a secret.

use std::path::Path;

use serde::Serialize;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{key}{}: {message}", origin.as_ref().map_or(String::new(), |origin| format!(" ({origin})")))]
pub struct Problem {
    /// The key as it is written in a file: `channels.settlements.id`; or `--config` for the file itself.
    pub key: String,
    /// The file and line, the environment variable or the flag that set the value; `None` if the key has no value.
    #[serde(rename = "source")]
    pub origin: Option<String>,
    /// The mistake, and how to correct it.
    pub message: String,
}

/// All problems of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// The error for an operator's file that cannot be used at all.
    pub(super) fn of_file(path: &Path, message: String) -> Self {
        let origin = Some(path.display().to_string());
        Self { problems: vec![Problem { key: "--config".to_owned(), origin, message }] }
    }
}
