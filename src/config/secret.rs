//! Secrets: given by value or by file.

use std::path::Path;

use super::files::read_up_to;
use super::table::{Reading, Table};

/// The largest file of a secret, in bytes.
const LIMIT: usize = 64 * 1024;

impl Table<'_> {
    /// The secret `name`, or that in the file `name_file`. `parse` says what is wrong with it without quoting it.
    pub(super) fn secret<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let file = format!("{name}_file");
        let key = self.either(name, &file)?;
        let text = match key {
            None => None,
            Some(key) if key == name => self.quoted(key)?,
            Some(key) => self.file(key, from_file)?,
        };
        let Some((key, text)) = key.zip(text) else { return Ok(None) };
        parse(&text).map(Some).map_err(|message| self.wrong(key, message))
    }
}

/// The text in a file, without the line break at its end.
pub(super) fn from_file(path: &str) -> Result<String, String> {
    // A secret may stand where the path belongs, and must not reach a log: only what is clearly a path is shown.
    let shown = if path.starts_with(['/', '.']) { format!("the file {path:?}") } else { "the file".to_owned() };
    let text = read_up_to(Path::new(path), LIMIT);
    let text = text.map_err(|error| format!("{shown} {error}; create it, or correct the path"))?;
    match text.trim_end_matches(['\r', '\n']) {
        "" => Err(format!("{shown} is empty; put the secret into it")),
        text => Ok(text.to_owned()),
    }
}
