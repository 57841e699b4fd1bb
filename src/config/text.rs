//! The operator's file as it was read.

use std::path::{Path, PathBuf};

use super::file::read_up_to;
use super::problem::{ConfigError, Problem};

/// No configuration is read beyond this: a thousand channels with filters of their own need less.
const TEXT_LIMIT: usize = 1024 * 1024;

/// The text of a configuration file; of none, where there is none. It may hold secrets: it is not shown.
#[derive(Clone, Default)]
pub struct Text(Option<(PathBuf, String)>);

impl Text {
    /// Reads `file`, where there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(file: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = file else { return Ok(Self(None)) };
        let text = read_up_to(path, TEXT_LIMIT).map_err(|error| {
            let origin = Some(path.display().to_string());
            let message = format!("the file {error}; correct the path or the file");
            ConfigError::new(vec![Problem { key: "--config".to_owned(), origin, message }])
        })?;
        Ok(Self(Some((path.to_owned(), text))))
    }

    /// Where it stands, and what it says.
    pub(super) fn get(&self) -> Option<(&Path, &str)> {
        self.0.as_ref().map(|(path, text)| (path.as_path(), text.as_str()))
    }
}
