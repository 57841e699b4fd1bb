//! Reading a merged configuration key by key, so that all its mistakes are found in one go.
//!
//! # Invariants
//!
//! * **Every error is on the list.** A [`Reported`] exists only after its problem has been noted, so that whoever gets
//!   one needs no more than to pass it on.
//! * **Asked for is known.** A key of the configuration that nothing asked for is unknown: there is no second list of
//!   keys to keep in step.

use std::fmt;
use std::path::Path;

use figment::value::{Dict, Value};
use figment::{Figment, Profile, Provider};

use super::files::Files;
use super::layers::{ENVIRONMENT, PREFIX};
use super::problem::{ConfigError, Problem};
use super::unknown::Known;

/// A value is wrong, and the problem has been noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

/// A key's value; `None` where it is not set.
pub(crate) type Reading<T> = Result<Option<T>, Reported>;

/// The place of a value or table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(Vec<String>);

impl Key {
    pub(crate) fn new(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }

    /// The key `name` of this table.
    pub(crate) fn at(&self, name: &str) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_owned());
        Self(names)
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.0
    }

    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("{PREFIX}{}", self.0.join("__").replace('-', "_").to_ascii_uppercase())
    }
}

impl From<Vec<String>> for Key {
    fn from(names: Vec<String>) -> Self {
        Self(names)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
            if bare { write!(f, "{dot}{name}")? } else { write!(f, "{dot}{name:?}")? }
        }
        Ok(())
    }
}

/// The merged configuration, what was asked of it, and what was found wrong.
pub(crate) struct Keys {
    figment: Figment,
    root: Dict,
    known: Known,
    files: Files,
    problems: Vec<Problem>,
}

impl Keys {
    /// `problems` are those found while merging.
    pub(super) fn new(figment: Figment, problems: Vec<Problem>) -> Self {
        let root = figment.data().ok().and_then(|mut profiles| profiles.remove(&Profile::Default)).unwrap_or_default();
        Self { figment, root, known: Known::default(), files: Files::default(), problems }
    }

    /// A value written as text or as a whole number, checked by `parse`, whose error says what is wrong and what to do.
    pub(crate) fn optional<T>(&mut self, key: &Key, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let Some(value) = self.find(key)? else { return Ok(None) };
        let Some(text) = scalar(&value) else { return Err(self.wrong(key, "must be a text in quotes")) };
        parse(&text).map(Some).map_err(|message| self.wrong(key, message))
    }

    /// As [`optional`](Self::optional), and its absence is a problem.
    pub(crate) fn required<T>(
        &mut self,
        key: &Key,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Reported> {
        let value = self.optional(key, parse)?;
        value.ok_or_else(|| self.missing(key))
    }

    /// What a file holds whose path is the value. `read` says what is wrong with it.
    pub(crate) fn file<T>(&mut self, key: &Key, read: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let Some(path) = self.optional(key, |path| Ok(path.to_owned()))? else { return Ok(None) };
        self.files.note(Path::new(&path));
        read(&path).map(Some).map_err(|message| self.wrong(key, message))
    }

    /// The files that were read.
    pub(super) fn files(&self) -> Files {
        self.files.clone()
    }

    /// A text that must be written as one: a number written without quotes may have lost digits on its way here.
    pub(crate) fn quoted(&mut self, key: &Key) -> Reading<String> {
        match self.find(key)? {
            None => Ok(None),
            Some(Value::String(_, text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(key, "must be a text in quotes")),
        }
    }

    /// `true` or `false`, as such or, from the environment, as a text.
    pub(crate) fn boolean(&mut self, key: &Key) -> Reading<bool> {
        let truth = match self.find(key)? {
            None => return Ok(None),
            Some(Value::Bool(_, truth)) => Some(truth),
            Some(value) => scalar(&value).and_then(|text| text.trim().parse().ok()),
        };
        truth.map(Some).ok_or_else(|| self.wrong(key, "must be true or false"))
    }

    /// A list of texts, or one text with commas between the items.
    pub(crate) fn list(&mut self, key: &Key) -> Reading<Vec<String>> {
        let items = match self.find(key)? {
            None => return Ok(None),
            Some(Value::Array(_, items)) => items.iter().map(scalar).collect::<Option<Vec<_>>>(),
            Some(value) => scalar(&value).map(|text| split(&text)),
        };
        items.map(Some).ok_or_else(|| self.wrong(key, "must be a list of texts, such as [\"a\", \"b\"]"))
    }

    /// Which of two keys that exclude each other is set. Of one in the environment and one in the file, the
    /// environment's is.
    pub(crate) fn either<'k>(&mut self, one: &'k Key, other: &'k Key) -> Reading<&'k Key> {
        let (first, second) = (self.find(one)?, self.find(other)?);
        match (first, second) {
            (None, None) => Ok(None),
            (Some(_), None) => Ok(Some(one)),
            (None, Some(_)) => Ok(Some(other)),
            (Some(first), Some(second)) => match (self.is_variable(&first), self.is_variable(&second)) {
                (true, false) => Ok(Some(one)),
                (false, true) => Ok(Some(other)),
                _ => Err(self.wrong(one, format!("is set together with {other}; keep one of the two"))),
            },
        }
    }

    /// Whether a table stands there.
    pub(crate) fn is_table(&self, key: &Key) -> bool {
        locate(&self.root, key.names()).is_some_and(|value| value.as_dict().is_some())
    }

    /// The names of the tables in a table, in ascending order.
    pub(crate) fn names(&mut self, key: &Key) -> Result<Vec<String>, Reported> {
        self.known.tables.insert(key.clone());
        match locate(&self.root, key.names()) {
            Some(Value::Dict(_, table)) => Ok(table.keys().cloned().collect()),
            Some(_) => Err(self.wrong(key, "must be a table")),
            None => Ok(Vec::new()),
        }
    }

    /// Counts everything in a table as known, where it cannot be told what belongs there.
    pub(crate) fn pass_over(&mut self, key: &Key) {
        self.known.values.insert(key.clone());
    }

    /// Notes a problem with a key.
    pub(crate) fn wrong(&mut self, key: &Key, message: impl Into<String>) -> Reported {
        let origin = locate(&self.root, key.names()).and_then(|value| self.origin(value));
        let problem = Problem { key: key.to_string(), origin, message: message.into() };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Reported
    }

    /// Notes that a key is not set and has no default.
    pub(crate) fn missing(&mut self, key: &Key) -> Reported {
        self.wrong(key, format!("is missing; set it in the file or as {}", key.variable()))
    }

    /// Ends the reading: the value, if nothing at all was wrong, unknown keys included.
    pub(super) fn finish<T>(mut self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        for key in self.known.missing_from(&self.root) {
            self.unknown(&key);
        }
        self.settle(value)
    }

    /// As [`finish`](Self::finish), where only a part of the configuration was asked for.
    pub(super) fn settle<T>(self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        match value {
            Ok(value) if self.problems.is_empty() => Ok(value),
            _ => Err(ConfigError::new(self.problems)),
        }
    }

    fn unknown(&mut self, key: &Key) {
        let variable = locate(&self.root, key.names()).is_some_and(|value| self.is_variable(value));
        let message = match self.known.closest(key) {
            Some(meant) if variable => format!("is not a known key; did you mean {}?", meant.variable()),
            Some(meant) => format!("is not a known key; did you mean {meant}?"),
            None => "is not a known key; remove it, or see the documented keys in config/default.toml".to_owned(),
        };
        self.wrong(key, message);
    }

    fn find(&mut self, key: &Key) -> Reading<Value> {
        self.known.values.insert(key.clone());
        for depth in 1..key.names().len() {
            let table = Key(key.names()[..depth].to_vec());
            let is_table = locate(&self.root, table.names()).is_none_or(|value| value.as_dict().is_some());
            self.known.tables.insert(table.clone());
            if !is_table {
                return Err(self.wrong(&table, "must be a table"));
            }
        }
        Ok(locate(&self.root, key.names()).cloned())
    }

    fn origin(&self, value: &Value) -> Option<String> {
        let metadata = self.figment.get_metadata(value.tag())?;
        let place = metadata.source.as_ref().and_then(figment::Source::custom).unwrap_or_default();
        Some(format!("{} {place}", metadata.name).trim().to_owned())
    }

    fn is_variable(&self, value: &Value) -> bool {
        self.figment.get_metadata(value.tag()).is_some_and(|metadata| metadata.name == ENVIRONMENT)
    }
}

#[cfg(test)]
impl Keys {
    pub(super) fn known(&self) -> &Known {
        &self.known
    }
}

/// The value at a place, wherever it came from.
pub(super) fn locate<'v>(root: &'v Dict, names: &[String]) -> Option<&'v Value> {
    let (last, tables) = names.split_last()?;
    let mut table = root;
    for name in tables {
        table = table.get(name)?.as_dict()?;
    }
    table.get(last)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(_, text) => Some(text.clone()),
        Value::Num(_, number) => {
            number.to_i128().map(|n| n.to_string()).or_else(|| number.to_u128().map(|n| n.to_string()))
        }
        _ => None,
    }
}

fn split(text: &str) -> Vec<String> {
    if text.trim().is_empty() { Vec::new() } else { text.split(',').map(|item| item.trim().to_owned()).collect() }
}
