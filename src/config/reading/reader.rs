//! The state of reading: the merged sources, the keys that were read, and the problems that were found.
//!
//! # Invariants
//!
//! * **Every error is on the list.** A [`Reported`] exists only after its problem was recorded. A function that receives a
//!   [`Reported`] only returns it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use figment::value::{Dict, Value};
use figment::{Figment, Metadata};

use crate::config::key::{Key, plain};
use crate::config::problem::{ConfigError, ConfigProblem};
use crate::config::sources::commands::PrintedSecrets;
use crate::config::sources::files::{ConfigText, Files, Lines};
use crate::config::sources::{Layer, defaults, environment, fragments, merged};

/// The value is missing or unusable, and the problem was recorded. A value that is wrong only in combination with others
/// is still returned, because a configuration with a problem is never used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

/// Builds a struct whose fields are results. All fields are read, and all their mistakes are recorded, before an error
/// is returned. A field can use the results of earlier fields by their names.
macro_rules! all {
    ($($type:ident)::+ { $($field:ident: $reading:expr),* $(,)? }) => {{
        $(let $field: Result<_, $crate::config::reading::Reported> = $reading;)*
        // A closure, so that an error ends only this struct and not the surrounding function.
        let build = || Ok::<_, $crate::config::reading::Reported>($($type)::+ { $($field: $field?),* });
        build()
    }};
}
pub(crate) use all;

/// The value of a key; `None` if it is not set.
pub(crate) type Reading<T> = Result<Option<T>, Reported>;

/// The merged layers, the keys that were read, and the problems that were found.
pub(crate) struct Reader {
    layers: Figment,
    pub(crate) values: Value,
    /// The lines of each of the operator's files.
    lines: BTreeMap<PathBuf, Lines>,
    pub(crate) lookups: RefCell<KeyLookups>,
    pub(crate) printed: RefCell<PrintedSecrets>,
    /// The files that were read, except the operator's own files.
    pub(crate) files: RefCell<Files>,
    /// The problems that were found before any key was read: tables that two files set, and problems with variables. Each problem
    /// has its key.
    of_sources: Vec<(Key, ConfigProblem)>,
    problems: RefCell<Vec<ConfigProblem>>,
    /// Notes for the operator that are not mistakes.
    pub(crate) notes: RefCell<Vec<String>>,
}

/// The keys and tables that were looked up.
#[derive(Default)]
pub(crate) struct KeyLookups {
    /// The keys that were looked up. Keys below them are part of their values.
    pub(crate) keys: BTreeMap<Key, KeyUse>,
    /// The tables in which keys were looked up.
    pub(crate) tables: BTreeSet<Key>,
}

/// How a key is used. Its value may be shown only if the use is `Shown`. With `ShownAs`, the given text is shown instead.
#[derive(Default)]
pub(crate) enum KeyUse {
    /// The key was looked up, and its value was not read.
    #[default]
    Known,
    Shown,
    ShownAs(String),
    Secret,
    /// The key is not set and has this default.
    Default(Value),
    /// The key is not set and inherits the value of this key.
    Inherits(Key),
    /// The key has no effect, because another key replaces it.
    Replaced,
}

impl Reader {
    /// Creates a reader over layers without an operator's file and without variables.
    pub(crate) fn new(layers: Figment) -> Self {
        let values = merged(&layers);
        let (lines, lookups, printed, files, of_sources, problems, notes) = <_>::default();
        Self { layers, values, lines, lookups, printed, files, of_sources, problems, notes }
    }

    /// Creates a reader over the defaults, the operator's texts and the variables. Fails only if a text is not TOML.
    /// The error then contains only such problems, because other problems could be their consequences.
    pub(crate) fn open(
        text: &ConfigText,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let variables = variables.into_iter().map(|(name, text)| (name.to_string_lossy().into_owned(), text)).collect();
        let files = layers_of(text)?;
        let lines = text.0.iter().filter_map(|(path, text)| Some((path.clone(), Lines::of(text)?))).collect();
        let mut of_sources = conflicts(text, &files, &lines);
        let layers = environment::add_telemetry(defaults(), &variables);
        let (layers, of_variables) = environment::add(files.into_iter().fold(layers, Figment::merge), &variables);
        of_sources.extend(of_variables);
        Ok(Self { lines, of_sources, ..Self::new(layers) })
    }

    /// Records a problem for each key that was never read.
    pub(crate) fn note_unknown(&self) {
        let lookups = self.lookups.borrow();
        for key in self.values.as_dict().map_or(Vec::new(), |values| lookups.unknown_in(&Key::default(), values)) {
            let message = match (lookups.closest(&key), self.kind_of_sink(&key)) {
                (Some(meant), _) if self.variable(&key).is_some() => {
                    format!("is not a known key; did you mean {}?", meant.variable())
                }
                (Some(meant), _) => format!("is not a known key; did you mean {meant}?"),
                (None, Some(kind)) => {
                    format!("is not a key of a sink of type {kind:?}; config/default.toml documents the keys")
                }
                (None, None) => {
                    "is not a known key; remove it, or see the documented keys in config/default.toml".to_owned()
                }
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

    /// Returns the value if no problem was found. If the value is only a part of the configuration (`is_part`), problems
    /// with the sources of other parts are left out.
    pub(crate) fn finish<T>(&self, value: Result<T, Reported>, is_part: bool) -> Result<T, ConfigError> {
        let counts = |(key, _): &&(Key, ConfigProblem)| !is_part || self.lookups.borrow().concerns(key);
        let of_sources = self.of_sources.iter().filter(counts).map(|(_, problem)| problem.clone());
        let problems: Vec<_> = of_sources.chain(self.problems.take()).collect();
        match value {
            Ok(value) if problems.is_empty() => Ok(value),
            _ => Err(ConfigError { problems }),
        }
    }

    pub(crate) fn wrong(&self, key: &Key, message: impl Into<String>) -> Reported {
        let line = self.line(key).map_or(String::new(), |line| format!(", line {line}"));
        let origin = self.origin(key).map(|origin| format!("{}{line}", origin.name));
        let problem = ConfigProblem { key: key.to_string(), origin, message: message.into() };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        Reported
    }

    /// The origin of a value; `None` if the key has no value.
    fn origin(&self, key: &Key) -> Option<&Metadata> {
        self.layers.get_metadata(key.find_in(&self.values)?.tag())
    }

    /// The operator's file that sets this value, if one does.
    pub(crate) fn file(&self, key: &Key) -> Option<&Path> {
        self.origin(key)?.source.as_ref()?.file_path()
    }

    /// The line of a value that one of the operator's files sets.
    pub(crate) fn line(&self, key: &Key) -> Option<usize> {
        self.lines.get(self.file(key)?)?.line(key)
    }

    /// The name of the variable that set a value.
    pub(crate) fn variable(&self, key: &Key) -> Option<&str> {
        self.origin(key)?.source.as_ref()?.custom()
    }
}

/// The layers of the operator's files. The error names every file that is not TOML.
fn layers_of(text: &ConfigText) -> Result<Vec<Layer>, ConfigError> {
    let (mut layers, mut problems) = (Vec::new(), Vec::new());
    for (path, text) in &text.0 {
        match Layer::file(path, text) {
            Ok(layer) => layers.push(layer),
            Err(error) => problems.extend(error.problems),
        }
    }
    if problems.is_empty() { Ok(layers) } else { Err(ConfigError { problems }) }
}

/// The problems with tables and keys that two files set, by their keys.
fn conflicts(text: &ConfigText, files: &[Layer], lines: &BTreeMap<PathBuf, Lines>) -> Vec<(Key, ConfigProblem)> {
    let values: Vec<_> = files.iter().map(Layer::values).collect();
    let problem = |(key, at): (Key, [usize; 2])| {
        let [earlier, later] = at.map(|at| {
            let path = &text.0[at].0;
            let line = lines.get(path).and_then(|lines| lines.line(&key));
            format!("file {}{}", path.display(), line.map_or(String::new(), |line| format!(", line {line}")))
        });
        let message = format!("is also set in {earlier}; keep it in one of the two files");
        let problem = ConfigProblem { key: key.to_string(), origin: Some(later), message };
        (key, problem)
    };
    fragments::conflicts(&values).into_iter().map(problem).collect()
}

impl KeyLookups {
    /// The keys of a table that were never read. For an unknown table, only the table is returned.
    fn unknown_in(&self, table: &Key, values: &Dict) -> Vec<Key> {
        let unknown = values.iter().flat_map(|(name, value)| {
            let key = table.at(name);
            match value {
                _ if self.keys.contains_key(&key) => Vec::new(),
                Value::Dict(_, inner) if self.tables.contains(&key) => self.unknown_in(&key, inner),
                _ if self.tables.contains(&key) => Vec::new(),
                _ => vec![key],
            }
        });
        unknown.collect()
    }

    /// Whether a source of `key` can affect a value that was read. This is the case if `key` was looked up, contains
    /// a key that was looked up, or is inside the value of a key that was looked up.
    fn concerns(&self, key: &Key) -> bool {
        let is_alike = |known: &Key| known.0.iter().zip(&key.0).all(|(known, name)| plain(known) == plain(name));
        // A table that was looked up does not count if it contains `key`: `key` may be another key of that table.
        let tables = self.tables.iter().filter(|table| table.0.len() >= key.0.len());
        self.keys.keys().chain(tables).any(is_alike)
    }

    /// Returns the known key that the operator probably meant. The rules, in this order: a similar name in the same table;
    /// the same key, if its levels were separated with `_`; the same name in another table. The last rule does not apply
    /// to keys of a sink, because operators choose the names of sinks, and each type has its own keys.
    fn closest(&self, unknown: &Key) -> Option<&Key> {
        let (name, table) = unknown.0.split_last()?;
        let most = (name.chars().count() / 3).max(1);
        let known = self.keys.keys().chain(&self.tables);
        let misspelt = known
            .filter(|key| key.0.split_last().is_some_and(|(_, above)| above == table))
            .map(|key| (strsim::damerau_levenshtein(name, key.name()), key))
            .filter(|(letters, _)| *letters <= most)
            .min_by_key(|(letters, _)| *letters);
        let joined = unknown.0.join("_");
        let is_of_sink = unknown.0[0] == "sinks";
        misspelt
            .map(|(_, key)| key)
            .or_else(|| self.keys.keys().find(|key| key.0.join("_") == joined))
            .or_else(|| self.keys.keys().find(|key| key.name() == name && !is_of_sink))
    }
}
