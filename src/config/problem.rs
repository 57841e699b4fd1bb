//! The problems of a configuration: all mistakes at once, each with its key, its origin and a solution.
//!
//! # Invariants
//!
//! * **No values.** A problem says which rule a value breaks. It never quotes a value that could be a secret.

use std::path::Path;

use serde::Serialize;
use toml_edit::{ImDocument, Key};

use super::sources::files::Text;
use super::sources::layer::FILE;

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
    /// Adds the line in the operator's file to the origin of each value.
    pub(super) fn located_in(mut self, text: &Text) -> Self {
        let (Text(Some((file, _))), Some(lines)) = (text, Lines::of(text)) else { return self };
        let origin = format!("{FILE}{}", file.display());
        for problem in self.problems.iter_mut().filter(|problem| problem.origin.as_ref() == Some(&origin)) {
            let path = Key::parse(&problem.key).unwrap_or_default();
            let line = lines.line(path.iter().map(Key::get));
            problem.origin = line.map(|line| format!("{origin}, line {line}")).or(problem.origin.take());
        }
        self
    }

    /// The error for an operator's file that cannot be used at all.
    pub(super) fn of_file(path: &Path, message: String) -> Self {
        let origin = Some(path.display().to_string());
        Self { problems: vec![Problem { key: "--config".to_owned(), origin, message }] }
    }
}

/// Finds the lines of keys in the operator's file.
pub(super) struct Lines<'t> {
    document: ImDocument<&'t str>,
    /// The positions of the line ends, in ascending order.
    ends: Vec<usize>,
}

impl<'t> Lines<'t> {
    /// Returns `None` without a file, or if the file is not TOML.
    pub(super) fn of(text: &'t Text) -> Option<Self> {
        let (_, text) = text.0.as_ref()?;
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        Some(Self { document: ImDocument::parse(text.as_str()).ok()?, ends })
    }

    /// The line of a key, from 1. For a key that is not in the file, the line of the nearest table above it that is.
    pub(super) fn line<'k>(&self, path: impl IntoIterator<Item = &'k str>) -> Option<usize> {
        let (mut table, mut at) = (self.document.as_item(), None);
        for name in path {
            let Some((key, value)) = table.as_table_like().and_then(|table| table.get_key_value(name)) else { break };
            at = key.span().or(at);
            table = value;
        }
        let at = at?.start;
        Some(1 + self.ends.partition_point(|end| *end < at))
    }
}
