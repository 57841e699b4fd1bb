//! Reads the keys of a table, one by one, so that one pass finds all mistakes.
//!
//! # Invariants
//!
//! * **Known keys are the keys that are read.** No second list of keys exists that could differ.
//! * **No secret is shown.** A value can be shown only after it was read, and not if it is a secret. A note names keys and
//!   files, and contains no secret.

use std::cell::RefMut;
use std::fmt::Display;
use std::path::Path;

use figment::value::{Dict, Value};
use url::Url;

use super::reader::{KeyLookups, KeyUse, Reader, Reading, Reported, all};
use super::values::{is_loopback, positive_duration};
use crate::config::key::Key;
use crate::config::sources::files::is_open_to_all;
use net::retry::RetryPolicy;

/// The longest name of an account, channel or sink.
pub(crate) const NAME_LIMIT: usize = 64;

/// A table of the configuration. A section also exists for a table that no layer contains.
#[derive(Clone)]
pub(crate) struct Section<'r> {
    pub(crate) reader: &'r Reader,
    pub(crate) key: Key,
}

impl<'r> Section<'r> {
    pub(crate) fn root(reader: &'r Reader) -> Self {
        Self { reader, key: Key::default() }
    }

    pub(crate) fn section(&self, name: &str) -> Self {
        Section { reader: self.reader, key: self.key.at(name) }
    }

    /// Reads a text or a whole number. `parse` checks the value. The error of `parse` describes the mistake and the
    /// correction.
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
        self.note_use(name, KeyUse::Default(default.into()));
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

    /// Reads `retry_wait` and `retry_wait_max`, with these defaults.
    pub(crate) fn retry_waits(&self, [wait, max_wait]: [&str; 2]) -> Result<RetryPolicy, Reported> {
        let policy = all!(RetryPolicy {
            wait: self.or("retry_wait", positive_duration, wait),
            max_wait: self.or("retry_wait_max", positive_duration, max_wait),
        })?;
        if policy.wait > policy.max_wait {
            let max = self.key.at("retry_wait_max");
            self.wrong("retry_wait", format!("must not be longer than {max}"));
        }
        Ok(policy)
    }

    /// Records a problem if a name of an account, channel or sink cannot be used in metric labels, variables or paths.
    pub(crate) fn check_name(&self, name: &str) {
        let legal = name.len() <= NAME_LIMIT && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        let framed = !name.is_empty() && !name.starts_with(['-', '_']) && !name.ends_with(['-', '_']);
        if !legal || !framed || name.contains("__") {
            let message = format!(
                "must be named with letters, digits, - and _ ({NAME_LIMIT} at most, a letter or digit at both ends, no \
                 __), because the name is used in metric labels, environment variables and paths"
            );
            self.wrong(name, message);
        }
    }

    /// Reads `true` or `false`. In the environment, the value is a text.
    pub(crate) fn boolean(&self, name: &str, default: bool) -> Result<bool, Reported> {
        let read = |value: &Value| value.to_bool().or_else(|| scalar(value)?.trim().parse().ok());
        let value = self.value(name, |value| read(value).ok_or_else(|| "must be true or false".to_owned()))?;
        Ok(value.unwrap_or_else(|| {
            self.note_use(name, KeyUse::Default(default.into()));
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

    /// A list of values that is not empty. `parse` receives each value with its number, from 1.
    pub(crate) fn items<T>(
        &self,
        name: &str,
        if_empty: &str,
        mut parse: impl FnMut(usize, &str) -> Result<T, String>,
    ) -> Reading<Vec<T>> {
        let Some(texts) = self.list(name)? else { return Ok(None) };
        if texts.is_empty() {
            return Err(self.wrong(name, if_empty));
        }
        let read = (1..).zip(&texts).map(|(number, text)| parse(number, text).map_err(|why| self.wrong(name, why)));
        // The items are collected twice: the first time, every mistake is recorded, and the second time, the first
        // error is returned.
        read.collect::<Vec<_>>().into_iter().collect::<Result<_, _>>().map(Some)
    }

    /// Returns which of several exclusive keys is set. A key in the environment takes precedence over a key in the file.
    pub(crate) fn one_of<'n, const N: usize>(&self, names: [&'n str; N]) -> Reading<&'n str> {
        let mut set = Vec::new();
        for name in names {
            if self.find(name)?.is_some() {
                set.push(name);
            }
        }
        let is_variable = |name: &&str| self.reader.variable(&self.key.at(name)).is_some();
        let (variables, written): (Vec<_>, Vec<_>) = set.into_iter().partition(is_variable);
        let (used, replaced) = if variables.is_empty() { (written, variables) } else { (variables, written) };
        if let [one, other, ..] = used[..] {
            let message = format!("is set together with {}; keep one of the two", self.key.at(other));
            return Err(self.wrong(one, message));
        }
        for name in replaced {
            self.note_use(name, KeyUse::Replaced);
        }
        Ok(used.first().copied())
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }

    /// Whether a value with this name exists. Unlike [`is_set`](Self::is_set), this does not make the key known.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.key.at(name).find_in(&self.reader.values).is_some()
    }

    /// Whether an operator set the key, in a file or in the environment.
    pub(crate) fn is_written(&self, name: &str) -> bool {
        let key = self.key.at(name);
        self.reader.file(&key).is_some() || self.reader.variable(&key).is_some()
    }

    pub(crate) fn is_table(&self, name: &str) -> bool {
        self.key.at(name).find_in(&self.reader.values).is_some_and(|value| value.as_dict().is_some())
    }

    /// The names in this table, in ascending order.
    pub(crate) fn names(&self) -> Result<Vec<String>, Reported> {
        Ok(self.table()?.map_or(Vec::new(), |table| table.keys().cloned().collect()))
    }

    /// Marks everything in this table as known, for a table whose valid keys cannot be determined.
    pub(crate) fn pass_over(&self) {
        self.lookups().keys.entry(self.key.clone()).or_default();
    }

    pub(crate) fn wrong(&self, name: &str, message: impl Into<String>) -> Reported {
        self.reader.wrong(&self.key.at(name), message)
    }

    /// Records that a key is not set and has no default.
    pub(crate) fn missing(&self, name: &str) -> Reported {
        self.wrong(name, format!("is missing; set it in the file or as {}", self.key.at(name).variable()))
    }

    /// Adds a note about a key for the operator. A note is not a mistake.
    pub(crate) fn note(&self, name: &str, message: impl Display) {
        self.reader.notes.borrow_mut().push(format!("{}: {message}", self.key.at(name)));
    }

    /// Adds a note if a secret is set in a file that every user can read.
    pub(crate) fn note_secret(&self, name: &str) {
        if let Some(file) = self.reader.file(&self.key.at(name)).filter(|file| is_open_to_all(file)) {
            let file = file.display();
            let message =
                format!("every user can read {file}, which contains this secret: run chmod o-r, or set {name}_file");
            self.note(name, message);
        }
    }

    /// Adds a note if `what` is sent in plain text to an address on another machine.
    pub(crate) fn note_plaintext(&self, name: &str, url: &Url, what: &str) {
        if url.scheme() == "http" && !is_loopback(url) {
            self.note(name, format!("plain http: {what} can be read and changed in transit; use https"));
        }
    }

    /// Records how a key is used, unless another key replaces it.
    pub(crate) fn note_use(&self, name: &str, used: KeyUse) {
        let mut lookups = self.lookups();
        let before = lookups.keys.entry(self.key.at(name)).or_default();
        if !matches!(before, KeyUse::Replaced) {
            *before = used;
        }
    }

    /// Reads a value in quotes that is not shown, because it is a secret.
    pub(super) fn hidden<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.note_use(name, KeyUse::Secret);
        self.quoted(name, parse)
    }

    fn value<T>(&self, name: &str, read: impl FnOnce(&Value) -> Result<T, String>) -> Reading<T> {
        let Some(value) = self.find(name)? else { return Ok(None) };
        if let Some(used) = self.lookups().keys.get_mut(&self.key.at(name))
            && matches!(used, KeyUse::Known)
        {
            *used = KeyUse::Shown;
        }
        read(value).map(Some).map_err(|message| self.wrong(name, message))
    }

    fn find(&self, name: &str) -> Reading<&'r Value> {
        self.lookups().keys.entry(self.key.at(name)).or_default();
        Ok(self.table()?.and_then(|table| table.get(name)))
    }

    /// Marks this table as known. Records a problem if the value at the key of this table is not a table.
    fn table(&self) -> Reading<&'r Dict> {
        self.lookups().tables.insert(self.key.clone());
        let Some(value) = self.key.find_in(&self.reader.values) else { return Ok(None) };
        value.as_dict().map(Some).ok_or_else(|| self.reader.wrong(&self.key, "must be a table"))
    }

    fn lookups(&self) -> RefMut<'r, KeyLookups> {
        self.reader.lookups.borrow_mut()
    }
}

/// The name under which the TOML reader passes on a date without quotes.
const TOML_DATE: &str = "$__toml_private_datetime";

/// Returns a text, or a whole number or a date as text.
fn scalar(value: &Value) -> Option<String> {
    let date = || value.as_dict()?.get(TOML_DATE)?.as_str();
    value.as_str().or_else(date).map(str::to_owned).or_else(|| Some(value.to_i128()?.to_string()))
}
