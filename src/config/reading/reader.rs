//! The state of reading: the merged sources, the keys that were read, and the problems that were found.
//!
//! # Invariants
//!
//! * **Every error is on the list.** A [`Reported`] exists only after its problem was recorded. It is passed on and needs no
//!   other handling.

use std::cell::RefCell;
use std::ffi::OsString;

use figment::Figment;
use figment::value::Value;

use super::seen::Seen;
use crate::config::key::Key;
use crate::config::problem::{ConfigError, Problem};
use crate::config::sources::environment::{self, ENVIRONMENT};
use crate::config::sources::files::Files;
use crate::config::sources::layer::{self, Layer, merged};
use crate::config::sources::text::Text;

/// The value is missing or unusable, and the problem was recorded. A value that is wrong only in combination with others
/// is still returned, because a configuration with a problem is never used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported;

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
pub(crate) use all;

/// The value of a key; `None` if it is not set.
pub(crate) type Reading<T> = Result<Option<T>, Reported>;

/// The merged layers, the keys that were read, and the problems that were found.
pub(crate) struct Reader {
    layers: Figment,
    pub(crate) values: Value,
    pub(crate) seen: RefCell<Seen>,
    /// The files that were read, except the operator's own file.
    pub(crate) files: RefCell<Files>,
    /// The problems with variables, by their keys.
    of_variables: Vec<(Key, Problem)>,
    problems: RefCell<Vec<Problem>>,
    /// Notes for the operator that are not mistakes.
    pub(crate) notes: RefCell<Vec<String>>,
}

impl Reader {
    /// Creates a reader over these layers. `of_variables` are the problems that were found in the environment.
    pub(crate) fn new(layers: Figment, of_variables: Vec<(Key, Problem)>) -> Self {
        let values = merged(&layers);
        let (seen, files, problems, notes) = <_>::default();
        Self { layers, values, seen, files, of_variables, problems, notes }
    }

    /// Creates a reader over the defaults, the operator's text and the variables.
    ///
    /// # Errors
    /// Only if the text is not TOML, because every other problem would follow from that.
    pub(crate) fn open(
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

    /// Records the keys that were never read.
    pub(crate) fn note_unknown(&self) {
        let seen = self.seen.borrow();
        for key in self.values.as_dict().map_or(Vec::new(), |values| seen.unknown_in(&Key::default(), values)) {
            let message = match seen.closest(&key) {
                Some(meant) if self.is_variable(&key) => {
                    format!("is not a known key; did you mean {}?", meant.variable())
                }
                Some(meant) => format!("is not a known key; did you mean {meant}?"),
                None => match self.kind_of_sink(&key) {
                    Some(kind) => {
                        format!("is not a key of a sink of type {kind:?}; config/default.toml documents the keys")
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

    /// Ends the reading. Returns the value if there is no problem.
    pub(crate) fn finish<T>(self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        let of_variables = self.of_variables.into_iter().map(|(_, problem)| problem);
        let problems: Vec<_> = of_variables.chain(self.problems.into_inner()).collect();
        match value {
            Ok(value) if problems.is_empty() => Ok(value),
            _ => Err(ConfigError { problems }),
        }
    }

    /// Like [`finish`](Self::finish), after a part was read: problems with other variables are left out.
    pub(crate) fn finish_part<T>(mut self, value: Result<T, Reported>) -> Result<T, ConfigError> {
        let seen = self.seen.get_mut();
        self.of_variables.retain(|(key, _)| seen.concerns(key));
        self.finish(value)
    }

    /// Records a problem with a key.
    pub(crate) fn wrong(&self, key: &Key, message: impl Into<String>) -> Reported {
        let origin = self.origin(key).map(str::to_owned);
        let problem = Problem { key: key.to_string(), origin, message: message.into() };
        let mut problems = self.problems.borrow_mut();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        Reported
    }

    /// The origin of a value; `None` if the key has no value.
    pub(crate) fn origin(&self, key: &Key) -> Option<&str> {
        Some(&*self.layers.get_metadata(key.find_in(&self.values)?.tag())?.name)
    }

    /// Whether a value was set by a variable.
    pub(crate) fn is_variable(&self, key: &Key) -> bool {
        self.origin(key).is_some_and(|origin| origin.starts_with(ENVIRONMENT))
    }
}
