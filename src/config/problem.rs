//! What is wrong with a configuration: every mistake at once, each with its key, its place and a way out.
//!
//! # Invariants
//!
//! * **No values.** A problem says which rule a value breaks and never quotes what could be a secret.

use std::path::Path;

use serde::Serialize;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{key}{}: {message}", origin.as_ref().map_or(String::new(), |origin| format!(" ({origin})")))]
pub struct Problem {
    /// The key, as it would stand in a file: `channels.settlements.id`; or `--config` for the file itself.
    pub key: String,
    /// The file, environment variable or flag the value came from; `None` where there is no value.
    #[serde(rename = "source")]
    pub origin: Option<String>,
    /// What is wrong, and what to do about it.
    pub message: String,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// The problems, at least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// The operator's file cannot be used at all.
    pub(super) fn of_file(path: &Path, message: String) -> Self {
        let origin = Some(path.display().to_string());
        Self { problems: vec![Problem { key: "--config".to_owned(), origin, message }] }
    }
}
