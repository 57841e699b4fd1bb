//! What an operator decides about logs.

use std::str::FromStr;

use strum::{EnumString, VariantNames};
use tracing_subscriber::EnvFilter;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// What is logged.
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
}

/// A level, or levels by module, in the syntax of [`EnvFilter`], which accepts it without an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevel(pub(super) Box<str>);

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let directives = text.trim();
        // The filter takes a misspelt level for the name of a module, and would silence everything else.
        let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let understood = directives.split(',').all(|part| part.contains('=') || is_level(part.trim()));
        if !understood || EnvFilter::try_new(directives).is_err() {
            return Err(format!("must be one of {}, or such as \"info,channeld::api=debug\"", LEVELS.join(", ")));
        }
        Ok(Self(directives.into()))
    }
}
