//! Reads the configuration key by key, so that one pass finds all mistakes.
//!
//! # Invariants
//!
//! * **Every error is on the list.** A [`Reported`] exists only after its problem was recorded. It is passed on and needs no
//!   other handling.
//! * **A key that is read is known.** A key that was never read is unknown. No second list of keys exists that could differ.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use figment::Figment;
use figment::value::{Dict, Value};

use crate::config::effective::Seen;
use crate::config::key::Key;
use crate::config::problem::{ConfigError, Problem};
use crate::config::reading::seen::Known;
use crate::config::sources::environment::{self, ENVIRONMENT};
use crate::config::sources::files::{Files, Text};
use crate::config::sources::layer::{self, Layer, merged};

/// The value is missing or unusable, and the problem was recorded. A value that is wrong only in combination with others
/// is still returned, because a configuration with a problem is never used.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Reported;

/// Builds a struct whose fields are results. Every field is read, and its mistakes are recorded, before an error ends the
/// reading. A field can use the results of earlier fields by their names.
macro_rules! all {
    ($($type:ident)::+ { $($field:ident: $reading:expr),* $(,)? }) => {{
        $(let $field: Result<_, $crate::config::reading::Reported> = $reading;)*
        // A closure, so that an error ends only this struct and not the surrounding function.
        let build = || Ok::<_, $crate::config::reading::Reported>($($type)::+ { $($field: $field?),* });
        build()
    }};
}
pub(in crate::config) use all;

/// The value of a key; `None` if it is not set.
pub(in crate::config) type Reading<T> = Result<Option<T>, Reported>;

/// The merged layers, the keys that were read, and the problems that were found.
pub(in crate::config) struct Reader {
    layers: Figment,
    pub(in crate::config) values: Value,
    pub(in crate::config) known: RefCell<Known>,
    /// Details about values in effect.
    pub(in crate::config) seen: RefCell<Seen>,
    /// The files that were read, except the operator's own file.
    pub(in crate::config) files: RefCell<Files>,
    problems: RefCell<Vec<Problem>>,
    /// Notes for the operator that are not mistakes.
    pub(in crate::config) notes: RefCell<Vec<String>>,
}

impl Reader {
    /// Creates a reader over these layers. `problems` were found while the layers were built.
    pub(in crate::config) fn new(layers: Figment, problems: Vec<Problem>) -> Self {
        let values = merged(&layers);
        let (known, seen, files, notes) = <_>::default();
        Self { layers, values, known, seen, files, problems: problems.into(), notes }
    }

    /// Creates a reader over the defaults, the operator's text and the variables.
    ///
    /// # Errors
    /// Only if the text is not TOML, because every other problem would follow from that.
    pub(in crate::config) fn open(
        text: &Text,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let variables: Vec<_> = variables.into_iter().collect();
        let mut layers = environment::add_telemetry(layer::defaults(), &variables);
        if let Some((path, text)) = &text.0 {
            layers = layers.merge(Layer::file(path, text)?);
        }
        let (layers, problems) = environment::add(layers, variables);
        Ok(Self::new(layers, problems))
    }

    /// The root table.
    pub(in crate::config) fn root(&self) -> Section<'_> {
        Section { reader: self, key: Key::default() }
    }

    /// Records the keys that were never read.
    pub(in crate::config) fn note_unknown(&self) {
        let known = self.known.borrow();
        for key in self.values.as_dict().map_or(Vec::new(), |values| known.unknown_in(&Key::default(), values)) {
            let message = match known.closest(&key) {
                Some(meant) if self.is_variable(&key) => {
                    format!("is not a known key; did you mean {}?", meant.variable())
                }
                Some(meant) => format!("is not a known key; did you mean {meant}?"),
                None => match self.kind_of_sink(&key) {
                    Some(kind) => {
                        format!("is no key of a sink of type {kind:?}; config/default.toml documents those that are")
                    }
                    None => {
                        "is not a known key; remove it, or see the documented keys in config/default.toml".to_owned()
                    }
                },
            };
            self.wrong(&key, message);
        }
    }

    /// The type of the sink that a key belongs to.
    fn kind_of_sink(&self, key: &Key) -> Option<&str> {
        let [sinks, name, _, ..] = &key.0[..] else { return None };
        let kind = Key::default().at(sinks).at(name).at("type");
        kind.find_in(&self.values).filter(|_| sinks == "sinks")?.as_str()
    }

    /// Ends the reading. Returns the value if no problem was recorded.
    pub(in crate::config) fn finish<T>(self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        match (value, self.problems.into_inner()) {
            (Ok(value), problems) if problems.is_empty() => Ok(value),
            (_, problems) => Err(ConfigError { problems }),
        }
    }

    fn wrong(&self, key: &Key, message: impl Into<String>) -> Reported {
        let origin = self.origin(key).map(str::to_owned);
        let problem = Problem { key: key.to_string(), origin, message: message.into() };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        Reported
    }

    /// The origin of a value; `None` if the key has no value.
    pub(in crate::config) fn origin(&self, key: &Key) -> Option<&str> {
        Some(&*self.layers.get_metadata(key.find_in(&self.values)?.tag())?.name)
    }

    /// Whether a value was set by a variable.
    fn is_variable(&self, key: &Key) -> bool {
        self.origin(key).is_some_and(|origin| origin.starts_with(ENVIRONMENT))
    }
}

/// A table of the configuration, whether or not any layer contains it.
pub(in crate::config) struct Section<'r> {
    pub(in crate::config) reader: &'r Reader,
    pub(in crate::config) key: Key,
}

impl<'r> Section<'r> {
    /// The table `name` in this one.
    pub(in crate::config) fn section(&self, name: &str) -> Self {
        Section { reader: self.reader, key: self.key.at(name) }
    }

    /// Reads a text or a whole number. `parse` checks it, and its error describes the mistake and its correction.
    pub(in crate::config) fn optional<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Reading<T> {
        self.value(name, |value| parse(&scalar(value).ok_or("must be a text in quotes")?))
    }

    /// Like [`optional`](Self::optional), but a missing value is a problem.
    pub(in crate::config) fn required<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Reported> {
        self.optional(name, parse)?.ok_or_else(|| self.missing(name))
    }

    /// Like [`optional`](Self::optional), with a default that is written as an operator would write it.
    pub(in crate::config) fn or<T>(
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
    pub(in crate::config) fn quoted<T>(&self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.value(name, |value| parse(value.as_str().ok_or("must be a text in quotes")?))
    }

    /// Reads the file whose path is the value. The error of `read` describes the problem with the file.
    pub(in crate::config) fn file<T>(&self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Reading<T> {
        self.optional(name, |path| {
            self.reader.files.borrow_mut().note(Path::new(path));
            read(path)
        })
    }

    /// Reads `true` or `false`. In the environment, the value is a text.
    pub(in crate::config) fn boolean(&self, name: &str, default: bool) -> Result<bool, Reported> {
        let read = |value: &Value| value.to_bool().or_else(|| scalar(value)?.trim().parse().ok());
        let value = self.value(name, |value| read(value).ok_or_else(|| "must be true or false".to_owned()))?;
        Ok(value.unwrap_or_else(|| {
            self.note_default(name, default);
            default
        }))
    }

    /// A list of texts, or one text with commas between the items.
    pub(in crate::config) fn list(&self, name: &str) -> Reading<Vec<String>> {
        self.value(name, |value| {
            let items = match value.as_array() {
                Some(items) => items.iter().map(scalar).collect(),
                None => scalar(value).map(|text| match text.trim() {
                    "" => Vec::new(),
                    text => text.split(',').map(|item| item.trim().to_owned()).collect(),
                }),
            };
            items.ok_or_else(|| "must be a list of texts, such as [\"a\", \"b\"]".to_owned())
        })
    }

    /// Returns which of two exclusive keys is set. A key in the environment takes precedence over one in the file.
    pub(in crate::config) fn either<'n>(&self, one: &'n str, other: &'n str) -> Reading<&'n str> {
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
    pub(in crate::config) fn is_set(&self, name: &str) -> bool {
        matches!(self.find(name), Ok(Some(_)))
    }

    /// Whether the value at `name` is a table.
    pub(in crate::config) fn is_table(&self, name: &str) -> bool {
        self.key.at(name).find_in(&self.reader.values).is_some_and(|value| value.as_dict().is_some())
    }

    /// The names in this table, in ascending order.
    pub(in crate::config) fn names(&self) -> Result<Vec<String>, Reported> {
        Ok(self.table()?.map_or(Vec::new(), |table| table.keys().cloned().collect()))
    }

    /// Marks everything in this table as known, for a table whose valid keys cannot be determined.
    pub(in crate::config) fn pass_over(&self) {
        self.reader.known.borrow_mut().values.insert(self.key.clone());
    }

    /// Records a problem with a key.
    pub(in crate::config) fn wrong(&self, name: &str, message: impl Into<String>) -> Reported {
        self.reader.wrong(&self.key.at(name), message)
    }

    /// Records that a key is not set and has no default.
    pub(in crate::config) fn missing(&self, name: &str) -> Reported {
        self.wrong(name, format!("is missing; set it in the file or as {}", self.key.at(name).variable()))
    }

    fn value<T>(&self, name: &str, read: impl FnOnce(&Value) -> Result<T, String>) -> Reading<T> {
        let Some(value) = self.find(name)? else { return Ok(None) };
        self.note_read(name);
        read(value).map(Some).map_err(|message| self.wrong(name, message))
    }

    fn find(&self, name: &str) -> Reading<&'r Value> {
        self.reader.known.borrow_mut().values.insert(self.key.at(name));
        Ok(self.table()?.and_then(|table| table.get(name)))
    }

    /// Marks this table as known. Records a problem if the value here is not a table.
    fn table(&self) -> Reading<&'r Dict> {
        self.reader.known.borrow_mut().tables.insert(self.key.clone());
        let Some(value) = self.key.find_in(&self.reader.values) else { return Ok(None) };
        value.as_dict().map(Some).ok_or_else(|| self.reader.wrong(&self.key, "must be a table"))
    }
}

/// Returns a text, or a whole number as text.
fn scalar(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned).or_else(|| Some(value.to_i128()?.to_string()))
}
