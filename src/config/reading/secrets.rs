//! Reads secrets, which are values or the contents of files.

use std::path::Path;

use super::Section;
use super::reader::Reading;
use crate::config::sources::files::{is_open_to_all, read_secret};

impl Section<'_> {
    /// Reads the secret in the file whose path is the value. The error of `parse` does not quote the secret.
    pub(crate) fn secret_file<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.optional(name, |path| self.secret_at(name, path, parse))
    }

    /// Reads the secrets in the files of a list that is not empty. The error of `parse` does not quote a secret.
    pub(crate) fn secret_files<T>(
        &self,
        name: &str,
        if_empty: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Reading<Vec<T>> {
        self.items(name, if_empty, |number, path| {
            self.secret_at(name, path, &parse).map_err(|why| format!("item {number} of the list: {why}"))
        })
    }

    fn secret_at<T>(&self, name: &str, path: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
        self.reader.files.borrow_mut().note(Path::new(path));
        let secret = read_secret(path)?;
        if is_open_to_all(Path::new(path)) {
            self.note(name, format!("every user can read {path}, which contains a secret: run chmod o-r"));
        }
        parse(&secret)
    }

    /// Reads the secret `name`, or the secret in the file `name_file`. The error of `parse` does not quote the secret.
    pub(crate) fn secret<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let file = format!("{name}_file");
        match self.either(name, &file)? {
            None => Ok(None),
            Some(key) if key == name => {
                self.note_secret(name);
                self.hidden(name, parse)
            }
            Some(key) => self.secret_file(key, parse),
        }
    }
}
