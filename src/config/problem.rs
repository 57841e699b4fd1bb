//! The problems of a configuration.
//!
//! A problem says which rule a value breaks. It never quotes a value that could be a secret.

use std::path::Path;

use serde::Serialize;

use ::sink::is_built_in;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{key}{}: {message}", origin.as_ref().map_or(String::new(), |origin| format!(" ({origin})")))]
pub struct ConfigProblem {
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
#[error("{}", problems.iter().map(ConfigProblem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// The problems, at least one.
    pub problems: Vec<ConfigProblem>,
}

impl ConfigError {
    /// The error for an operator's file that cannot be used at all.
    pub(super) fn of_file(path: &Path, message: String) -> Self {
        let origin = Some(path.display().to_string());
        Self { problems: vec![ConfigProblem { key: "--config".to_owned(), origin, message }] }
    }
}

/// Returns why a sink or a state database of this type cannot be used, or `None` if it can be used.
pub fn not_built_in(kind: &str) -> Option<String> {
    let needs = if kind == "kafka" { ", which needs a C++ compiler and OpenSSL (libssl-dev)" } else { "" };
    (!is_built_in(kind)).then(|| format!("is \"{kind}\", and {}{needs}", built_without("it", kind)))
}

/// Says that this program was built without a part, and how to get a program that has the part.
pub fn built_without(part: &str, feature: &str) -> String {
    format!(
        "this channeld was built without {part}: use a released package or image, or build it with `cargo build \
         --release --features {feature}`"
    )
}
