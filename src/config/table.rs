//! Reading the merged configuration key by key, so that all its mistakes are found in one pass.
//!
//! # Invariants
//!
//! * **Every error is on the list.** A [`Reported`] exists only after its problem has been noted: it is passed on, and
//!   nothing else has to be done about it.
//! * **A key that is read is known.** A key of the configuration that was never read is unknown: there is no second list
//!   of keys to keep in step.

use std::path::Path;

use figment::value::{Dict, Value};
use figment::{Figment, Source};

use super::files::Files;
use super::key::Key;
use super::known::Known;
use super::layers::{ENVIRONMENT, values};
use super::problem::{ConfigError, Problem};

/// A value is wrong, and the problem has been noted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

/// A key's value; `None` where it is not set.
pub(super) type Reading<T> = Result<Option<T>, Reported>;

/// The merged configuration, the keys that were read, and the problems that were found.
pub(super) struct Merged {
    figment: Figment,
    root: Dict,
    pub(super) known: Known,
    /// The files that were read beside the operator's own.
    pub(super) files: Files,
    problems: Vec<Problem>,
}

impl Merged {
    /// `problems` are those found while merging.
    pub(super) fn new(figment: Figment, problems: Vec<Problem>) -> Self {
        Self { root: values(&figment), figment, known: Known::default(), files: Files::default(), problems }
    }

    /// The table that holds everything.
    pub(super) fn root(&mut self) -> Table<'_> {
        self.at(Key::default())
    }

    /// A table of the root.
    pub(super) fn table(&mut self, name: &str) -> Table<'_> {
        self.at(Key::default().at(name))
    }

    /// The table at a place.
    pub(super) fn at(&mut self, key: Key) -> Table<'_> {
        Table { merged: self, key }
    }

    /// Ends the reading: the value, if nothing at all was wrong, unknown keys included.
    pub(super) fn finish<T>(mut self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        for key in self.known.unknown_in(&self.root) {
            let by_variable = locate(&self.root, key.names()).is_some_and(|value| self.is_variable(value));
            let message = match self.known.closest(&key) {
                Some(meant) if by_variable => format!("is not a known key; did you mean {}?", meant.variable()),
                Some(meant) => format!("is not a known key; did you mean {meant}?"),
                None => "is not a known key; remove it, or see the documented keys in config/default.toml".to_owned(),
            };
            self.wrong(&key, message);
        }
        self.settle(value)
    }

    /// As [`finish`](Self::finish), where only a part of the configuration was read.
    pub(super) fn settle<T>(self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        match value {
            Ok(value) if self.problems.is_empty() => Ok(value),
            _ => Err(ConfigError::new(self.problems)),
        }
    }

    fn wrong(&mut self, key: &Key, message: impl Into<String>) -> Reported {
        let origin = locate(&self.root, key.names()).and_then(|value| {
            let metadata = self.figment.get_metadata(value.tag())?;
            let place = metadata.source.as_ref().and_then(Source::custom).unwrap_or_default();
            Some(format!("{} {place}", metadata.name).trim().to_owned())
        });
        let problem = Problem { key: key.to_string(), origin, message: message.into() };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Reported
    }

    fn is_variable(&self, value: &Value) -> bool {
        self.figment.get_metadata(value.tag()).is_some_and(|metadata| metadata.name == ENVIRONMENT)
    }
}

/// A table of the configuration, whether or not it is written anywhere.
pub(super) struct Table<'m> {
    merged: &'m mut Merged,
    key: Key,
}

impl Table<'_> {
    /// The table `name` in this one.
    pub(super) fn table(&mut self, name: &str) -> Table<'_> {
        self.merged.at(self.key.at(name))
    }

    /// Where it is.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// A value written as text or as a whole number, checked by `parse`, whose error says what is wrong and what to do.
    pub(super) fn optional<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let Some(value) = self.find(name)? else { return Ok(None) };
        let Some(text) = scalar(&value) else { return Err(self.wrong(name, "must be a text in quotes")) };
        parse(&text).map(Some).map_err(|message| self.wrong(name, message))
    }

    /// As [`optional`](Self::optional), and its absence is a problem.
    pub(super) fn required<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Reported> {
        let value = self.optional(name, parse)?;
        value.ok_or_else(|| self.missing(name))
    }

    /// What the file holds whose path is the value. `read` says what is wrong with it.
    pub(super) fn file<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        let Some(path) = self.optional(name, |path| Ok(path.to_owned()))? else { return Ok(None) };
        self.merged.files.note(Path::new(&path));
        read(&path).map(Some).map_err(|message| self.wrong(name, message))
    }

    /// A text that must be written in quotes: a number without them may have lost digits.
    pub(super) fn quoted(&mut self, name: &str) -> Reading<String> {
        match self.find(name)? {
            None => Ok(None),
            Some(Value::String(_, text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "must be a text in quotes")),
        }
    }

    /// `true` or `false`, as such or, from the environment, as a text.
    pub(super) fn boolean(&mut self, name: &str) -> Reading<bool> {
        let truth = match self.find(name)? {
            None => return Ok(None),
            Some(Value::Bool(_, truth)) => Some(truth),
            Some(value) => scalar(&value).and_then(|text| text.trim().parse().ok()),
        };
        truth.map(Some).ok_or_else(|| self.wrong(name, "must be true or false"))
    }

    /// A list of texts, or one text with commas between the items.
    pub(super) fn list(&mut self, name: &str) -> Reading<Vec<String>> {
        let items = match self.find(name)? {
            None => return Ok(None),
            Some(Value::Array(_, items)) => items.iter().map(scalar).collect(),
            Some(value) => scalar(&value).map(|text| match text.trim() {
                "" => Vec::new(),
                text => text.split(',').map(|item| item.trim().to_owned()).collect(),
            }),
        };
        items.map(Some).ok_or_else(|| self.wrong(name, "must be a list of texts, such as [\"a\", \"b\"]"))
    }

    /// Which of two keys that exclude each other is set. The environment's counts before the file's.
    pub(super) fn either<'n>(&mut self, one: &'n str, other: &'n str) -> Reading<&'n str> {
        match (self.find(one)?, self.find(other)?) {
            (None, None) => Ok(None),
            (Some(_), None) => Ok(Some(one)),
            (None, Some(_)) => Ok(Some(other)),
            (Some(first), Some(second)) => match (self.merged.is_variable(&first), self.merged.is_variable(&second)) {
                (true, false) => Ok(Some(one)),
                (false, true) => Ok(Some(other)),
                _ => Err(self.wrong(one, format!("is set together with {}; keep one of the two", self.key.at(other)))),
            },
        }
    }

    /// Whether a table is written there.
    pub(super) fn is_table(&self, name: &str) -> bool {
        locate(&self.merged.root, self.key.at(name).names()).is_some_and(|value| value.as_dict().is_some())
    }

    /// The names in this table, in ascending order.
    pub(super) fn names(&mut self) -> Result<Vec<String>, Reported> {
        self.merged.known.tables.insert(self.key.clone());
        match locate(&self.merged.root, self.key.names()) {
            Some(Value::Dict(_, table)) => Ok(table.keys().cloned().collect()),
            Some(_) => Err(self.wrong_itself("must be a table")),
            None => Ok(Vec::new()),
        }
    }

    /// Counts everything in this table as known, where it cannot be told what belongs there.
    pub(super) fn pass_over(&mut self) {
        self.merged.known.values.insert(self.key.clone());
    }

    /// Notes a problem with a key.
    pub(super) fn wrong(&mut self, name: &str, message: impl Into<String>) -> Reported {
        self.merged.wrong(&self.key.at(name), message)
    }

    /// Notes a problem with this table.
    pub(super) fn wrong_itself(&mut self, message: impl Into<String>) -> Reported {
        self.merged.wrong(&self.key.clone(), message)
    }

    /// Notes that a key is not set and has no default.
    pub(super) fn missing(&mut self, name: &str) -> Reported {
        self.wrong(name, format!("is missing; set it in the file or as {}", self.key.at(name).variable()))
    }

    fn find(&mut self, name: &str) -> Reading<Value> {
        let (key, above) = (self.key.at(name), self.key.names());
        self.merged.known.values.insert(key.clone());
        for depth in 1..=above.len() {
            let table: Key = above[..depth].iter().cloned().collect();
            let is_table = locate(&self.merged.root, table.names()).is_none_or(|value| value.as_dict().is_some());
            self.merged.known.tables.insert(table.clone());
            if !is_table {
                return Err(self.merged.wrong(&table, "must be a table"));
            }
        }
        Ok(locate(&self.merged.root, key.names()).cloned())
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
