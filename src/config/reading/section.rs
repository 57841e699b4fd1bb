//! Reads the keys of a table, one by one, so that one pass finds all mistakes.
//!
//! # Invariants
//!
//! * **A key that is read is known.** A key that was never read is unknown. No second list of keys exists that could differ.
//! * **No secret is shown.** A value can be shown only after it was read, and not if it is a secret.

use std::path::Path;

use figment::value::{Dict, Value};

use super::reader::{Reader, Reading, Reported};
use super::seen::Presentation;
use crate::config::key::Key;

/// A table of the configuration, whether or not any layer contains it.
pub(crate) struct Section<'r> {
    pub(crate) reader: &'r Reader,
    pub(crate) key: Key,
}

impl<'r> Section<'r> {
    /// The root table.
    pub(crate) fn root(reader: &'r Reader) -> Self {
        Self { reader, key: Key::default() }
    }

    /// The table `name` in this one.
    pub(crate) fn section(&self, name: &str) -> Self {
        Section { reader: self.reader, key: self.key.at(name) }
    }

    /// Reads a text or a whole number. `parse` checks it, and its error describes the mistake and its correction.
    pub(crate) fn optional<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.value(name, |value| parse(&scalar(value).ok_or("must be a string in quotes")?))
    }

    /// Like [`optional`](Self::optional), but a missing value is a problem.
    pub(crate) fn required<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Reported> {
        self.optional(name, parse)?.ok_or_else(|| self.missing(name))
    }

    /// Like [`optional`](Self::optional), with a default that is written as an operator would write it.
    pub(crate) fn or<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
        default: &str,
    ) -> Result<T, Reported> {
        if let Some(value) = self.optional(name, &parse)? {
            return Ok(value);
        }
        self.note_default(name, default);
        parse(default).map_err(|message| self.wrong(name, message))
    }

    /// Reads a text that must be in quotes, because an unquoted number could have lost digits.
    pub(crate) fn quoted<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.value(name, |value| parse(value.as_str().ok_or("must be a string in quotes")?))
    }

    /// Reads the file whose path is the value. The error of `read` describes the problem with the file.
    pub(crate) fn file<T>(&self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.optional(name, |path| {
            self.reader.files.borrow_mut().note(Path::new(path));
            read(path)
        })
    }

    /// Reads `true` or `false`. In the environment, the value is a text.
    pub(crate) fn boolean(&self, name: &str, default: bool) -> Result<bool, Reported> {
        let read = |value: &Value| value.to_bool().or_else(|| scalar(value)?.trim().parse().ok());
        let value = self.value(name, |value| read(value).ok_or_else(|| "must be true or false".to_owned()))?;
        Ok(value.unwrap_or_else(|| {
            self.note_default(name, default);
            default
        }))
    }

    /// A list of texts, or one text with commas between the items.
    pub(crate) fn list(&self, name: &str) -> Reading<Vec<String>> {
        self.value(name, |value| {
            let items = match value.as_array() {
                Some(items) => items.iter().map(scalar).collect(),
                None => scalar(value).map(|text| match text.trim() {
                    "" => Vec::new(),
                    text => text.split(',').map(|item| item.trim().to_owned()).collect(),
                }),
            };
            items.ok_or_else(|| "must be a list of strings, such as [\"a\", \"b\"]".to_owned())
        })
    }

    /// Returns which of two exclusive keys is set. A key in the environment takes precedence over one in the file.
    pub(crate) fn either<'n>(&self, one: &'n str, other: &'n str) -> Reading<&'n str> {
        let is_variable = |name| self.reader.is_variable(&self.key.at(name));
        match (self.find(one)?, self.find(other)?) {
            (None, None) => Ok(None),
            (Some(_), None) => Ok(Some(one)),
            (None, Some(_)) => Ok(Some(other)),
            (Some(_), Some(_)) => match (is_variable(one), is_variable(other)) {
                (true, false) => Ok(Some(self.instead(one, other))),
                (false, true) => Ok(Some(self.instead(other, one))),
                _ => Err(self.wrong(one, format!("is set together with {}; keep one of the two", self.key.at(other)))),
            },
        }
    }

    /// Whether a value is set at `name`.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }

    /// Whether the value at `name` is a table.
    pub(crate) fn is_table(&self, name: &str) -> bool {
        self.key.at(name).find_in(&self.reader.values).is_some_and(|value| value.as_dict().is_some())
    }

    /// The names in this table, in ascending order.
    pub(crate) fn names(&self) -> Result<Vec<String>, Reported> {
        Ok(self.table()?.map_or(Vec::new(), |table| table.keys().cloned().collect()))
    }

    /// Marks everything in this table as known, for a table whose valid keys cannot be determined.
    pub(crate) fn pass_over(&self) {
        self.reader.seen.borrow_mut().values.insert(self.key.clone());
    }

    /// Records a problem with a key.
    pub(crate) fn wrong(&self, name: &str, message: impl Into<String>) -> Reported {
        self.reader.wrong(&self.key.at(name), message)
    }

    /// Records that a key is not set and has no default.
    pub(crate) fn missing(&self, name: &str) -> Reported {
        self.wrong(name, format!("is missing; set it in the file or as {}", self.key.at(name).variable()))
    }

    /// Records that a value was read. It is shown, unless it was hidden before.
    pub(crate) fn note_read(&self, name: &str) {
        self.reader.seen.borrow_mut().shown.entry(self.key.at(name)).or_insert(Presentation::AsItIs);
    }

    /// Shows another text instead of a value.
    pub(crate) fn show_as(&self, name: &str, text: String) {
        self.reader.seen.borrow_mut().shown.insert(self.key.at(name), Presentation::As(text));
    }

    /// Hides a value, because it is a secret.
    pub(crate) fn hide(&self, name: &str) {
        self.reader.seen.borrow_mut().shown.insert(self.key.at(name), Presentation::Hidden);
    }

    /// Records the default of a key that is not set.
    pub(crate) fn note_default(&self, name: &str, value: impl Into<Value>) {
        self.reader.seen.borrow_mut().defaults.insert(self.key.at(name), value.into());
    }

    /// Records that a key is not set here and inherits the value of `other`.
    pub(crate) fn note_inherited(&self, name: &str, other: &Section<'_>) {
        self.reader.seen.borrow_mut().inherited.insert(self.key.at(name), other.key.at(name));
    }

    /// Returns the first of two keys, and records that it replaces the second.
    pub(crate) fn instead<'n>(&self, one: &'n str, other: &str) -> &'n str {
        self.reader.seen.borrow_mut().replaced.insert(self.key.at(other));
        one
    }

    fn value<T>(&self, name: &str, read: impl FnOnce(&Value) -> Result<T, String>) -> Reading<T> {
        let Some(value) = self.find(name)? else { return Ok(None) };
        self.note_read(name);
        read(value).map(Some).map_err(|message| self.wrong(name, message))
    }

    fn find(&self, name: &str) -> Reading<&'r Value> {
        self.reader.seen.borrow_mut().values.insert(self.key.at(name));
        Ok(self.table()?.and_then(|table| table.get(name)))
    }

    /// Marks this table as known. Records a problem if the value here is not a table.
    fn table(&self) -> Reading<&'r Dict> {
        self.reader.seen.borrow_mut().tables.insert(self.key.clone());
        let Some(value) = self.key.find_in(&self.reader.values) else { return Ok(None) };
        value.as_dict().map(Some).ok_or_else(|| self.reader.wrong(&self.key, "must be a table"))
    }
}

/// Returns a text, or a whole number as text.
fn scalar(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| Some(value.to_i128()?.to_string()))
}
