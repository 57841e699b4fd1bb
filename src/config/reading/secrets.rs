//! Reads secrets: from a value, from the file that `NAME_file` names, or from the program that `NAME_command` names.

use std::path::Path;

use super::reader::{KeyUse, Reading, Reported};
use super::section::Section;
use crate::config::sources::files::{is_open_to_all, read_secret};

impl Section<'_> {
    /// Reads the secret `name`, or the secret of `name_file` or `name_command`. The error of `parse` does not quote the secret.
    pub(crate) fn secret<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let [file, command] = ["file", "command"].map(|source| format!("{name}_{source}"));
        match self.one_of([name, &file, &command])? {
            Some(key) if key == name => {
                self.note_secret(name);
                self.hidden(name, parse)
            }
            Some(key) if key == command => self.printed_secret(key, parse),
            Some(key) => self.secret_in_file(key, parse),
            None => Ok(None),
        }
    }

    /// Reads the secret of `name_file` or `name_command`, for a secret that cannot be a value. The error of `parse` does not quote
    /// the secret.
    pub(crate) fn stored_secret<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let [file, command] = ["file", "command"].map(|source| format!("{name}_{source}"));
        match self.one_of([&*file, &*command])? {
            Some(key) if key == command => self.printed_secret(key, parse),
            Some(key) => self.secret_in_file(key, parse),
            None => Ok(None),
        }
    }

    /// Reads the values of the first table, the secrets in the files that the second table names, and the secrets that the programs
    /// in the third table print. Each value is passed to `found` with its table and its name. If a value has a mistake, the mistake
    /// is passed instead of the value.
    pub(crate) fn named_values<T>(
        &self,
        [values, files, commands]: [&str; 3],
        parse: impl Fn(&str) -> Result<T, String>,
        mut found: impl FnMut(&Self, &str, Result<T, Reported>),
    ) -> Result<(), Reported> {
        for kind in [values, files, commands] {
            let table = self.section(kind);
            for name in table.names()? {
                let value = if kind == values {
                    table.hidden(&name, &parse)
                } else if kind == files {
                    table.secret_in_file(&name, &parse)
                } else {
                    table.printed_secret(&name, &parse)
                };
                found(&table, &name, value.and_then(|value| value.ok_or_else(|| table.missing(&name))));
            }
        }
        Ok(())
    }

    /// Reads the secrets in the files of a list that is not empty. The error of `parse` does not quote a secret.
    pub(crate) fn secret_files<T>(
        &self,
        name: &str,
        if_empty: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Reading<Vec<T>> {
        self.items(name, if_empty, |number, path| {
            self.reader.files.borrow_mut().note(Path::new(path));
            self.secret_at(name, path, &parse).map_err(|why| format!("item {number} of the list: {why}"))
        })
    }

    /// Reads the secret in the file whose path is the value.
    pub(crate) fn secret_in_file<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.file(name, |path| self.secret_at(name, path, parse))
    }

    fn secret_at<T>(&self, name: &str, path: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, String> {
        let secret = read_secret(path)?;
        if is_open_to_all(Path::new(path)) {
            self.note(name, format!("every user can read {path}, which contains a secret: run chmod o-r"));
        }
        parse(&secret)
    }

    /// Reads the secret that a program prints. The value is the program and its arguments. The arguments are not shown, because one of
    /// them can be a secret.
    fn printed_secret<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let Some(words) = self.list(name)? else { return Ok(None) };
        let shown = match &words[..] {
            [program] => program.clone(),
            [program, ..] => format!("{program} …"),
            [] => String::new(),
        };
        self.note_use(name, KeyUse::ShownAs(shown));
        let secret = self.reader.printed.borrow_mut().read(words);
        secret.and_then(|secret| parse(&secret)).map(Some).map_err(|message| self.wrong(name, message))
    }
}
