//! The text of the operator's file.

use std::path::{Path, PathBuf};

use toml_edit::{ImDocument, Key};

use super::files::read_up_to;
use crate::config::problem::ConfigError;

/// The largest configuration file, in bytes. A thousand channels with their own filters need less.
const TEXT_LIMIT: usize = 1024 * 1024;

/// The beginning of the origin of a value in the operator's file.
pub(crate) const FILE: &str = "file ";

/// The text of a configuration file, and its path; `None` without a file. The text can contain secrets and is never
/// shown.
#[derive(Clone, Default)]
pub struct Text(pub(crate) Option<(PathBuf, String)>);

impl Text {
    /// The text that `file` will have.
    pub fn written(file: &Path, text: String) -> Self {
        Self(Some((file.to_owned(), text)))
    }

    /// Reads `file`, if one is given.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = file else { return Ok(Self(None)) };
        let text = read_up_to(path, TEXT_LIMIT)
            .map_err(|error| ConfigError::of_file(path, format!("the file {error}; correct the path or the file")))?;
        Ok(Self(Some((path.to_owned(), text))))
    }

    /// Adds the line in this text to the origin of each value.
    pub(crate) fn locate(&self, mut error: ConfigError) -> ConfigError {
        let (Some((file, _)), Some(lines)) = (&self.0, Lines::of(self)) else { return error };
        let origin = format!("{FILE}{}", file.display());
        for problem in error.problems.iter_mut().filter(|problem| problem.origin.as_ref() == Some(&origin)) {
            let path = Key::parse(&problem.key).unwrap_or_default();
            let line = lines.line(path.iter().map(Key::get));
            problem.origin = line.map(|line| format!("{origin}, line {line}")).or(problem.origin.take());
        }
        error
    }
}

/// Finds the lines of keys in the operator's file.
pub(crate) struct Lines<'t> {
    document: ImDocument<&'t str>,
    /// The positions of the line ends, in ascending order.
    ends: Vec<usize>,
}

impl<'t> Lines<'t> {
    /// Returns `None` without a file, or if the file is not TOML.
    pub(crate) fn of(text: &'t Text) -> Option<Self> {
        let (_, text) = text.0.as_ref()?;
        let ends = text.match_indices('\n').map(|(at, _)| at).collect();
        Some(Self { document: ImDocument::parse(text.as_str()).ok()?, ends })
    }

    /// The line of a key, from 1. For a key that is not in the file, the line of the nearest table above it that is.
    pub(crate) fn line<'k>(&self, path: impl IntoIterator<Item = &'k str>) -> Option<usize> {
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
