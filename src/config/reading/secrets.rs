//! Reads secrets, and adds notes about secrets that other users can read.
//!
//! # Invariants
//!
//! * **A note contains no secret.** It names keys and files.

use std::fmt::Display;
use std::path::Path;

use url::Url;

use super::reader::Reading;
use super::section::Section;
use super::values::is_loopback;
use crate::config::sources::files::{is_open_to_all, read_secret};
use crate::config::sources::text::FILE;

impl Section<'_> {
    /// Reads the secret in the file whose path is the value. The error of `parse` does not quote the secret.
    pub(crate) fn secret_file<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.file(name, |path| {
            let secret = read_secret(path)?;
            if is_open_to_all(Path::new(path)) {
                self.note(name, format!("every user can read {path}, which contains a secret: run chmod o-r"));
            }
            parse(&secret)
        })
    }

    /// Reads the secret `name`, or the secret in the file `name_file`. The error of `parse`
    /// does not quote it.
    pub(crate) fn secret<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let file = format!("{name}_file");
        match self.either(name, &file)? {
            None => Ok(None),
            Some(key) if key == name => {
                self.note_secret(name);
                self.hide(name);
                self.quoted(key, parse)
            }
            Some(key) => self.secret_file(key, parse),
        }
    }

    /// Reads a user's name and password. Both keys must be set, or neither.
    pub(crate) fn login(
        &self,
        [user, password]: [&str; 2],
        parse_user: impl FnOnce(&str) -> Result<String, String>,
        parse_password: impl FnOnce(&str) -> Result<String, String>,
    ) -> Reading<(String, String)> {
        let (name, secret) = (self.optional(user, parse_user), self.secret(password, parse_password));
        match (name?, secret?) {
            (None, None) => Ok(None),
            (Some(name), Some(secret)) => Ok(Some((name, secret))),
            (None, Some(_)) => Err(self.wrong(user, format!("is missing, but {password} is set; set both"))),
            (Some(_), None) => {
                Err(self.wrong(user, format!("is set without {password}; set {password} or {password}_file")))
            }
        }
    }

    /// Adds a note if a secret is set in a file that every user can read.
    pub(crate) fn note_secret(&self, name: &str) {
        let origin = self.reader.origin(&self.key.at(name)).and_then(|origin| origin.strip_prefix(FILE));
        if let Some(file) = origin.filter(|file| is_open_to_all(Path::new(file))) {
            let message =
                format!("every user can read {file}, which contains this secret: run chmod o-r, or set {name}_file");
            self.note(name, message);
        }
    }

    /// Adds a note about a key for the operator. A note is not a mistake.
    pub(crate) fn note(&self, name: &str, message: impl Display) {
        self.reader.notes.borrow_mut().push(format!("{}: {message}", self.key.at(name)));
    }

    /// Adds a note if `what` is sent in plain text to an address on another machine.
    pub(crate) fn note_plaintext(&self, name: &str, url: &Url, what: &str) {
        if url.scheme() == "http" && !is_loopback(url) {
            let message = format!("plain http: {what} can be read and changed in transit; use https");
            self.note(name, message);
        }
    }
}
