//! The destination of the events: the type of the sink, and its path or address.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValue;

use super::prompt::{self, Stop};
use crate::cli::context::{CommandError, Exit};
use crate::cli::terminal::{failure_for_stderr, shell_word};
use crate::cli::verdict_line::printable;
use crate::config::not_built_in;
use sink::is_built_in;

/// The sink types that can be configured without further keys.
const SINKS: [&str; 7] = ["file", "stdout", "webhook", "sqlite", "postgres", "nats", KAFKA];

/// The lines for a webhook. The program that receives the events usually acts on them.
const FINALIZED: &str = "\
# A valid proof does not mean that the chain keeps the event. Only events that are final, failures, and events that do not depend
# on a block are sent. Remove this line to send all events.
filter.min_confidence = \"finalized\"
";

/// The lines for a table, so that the console finds words.
const SEARCH: &str = "\
# Full-text search for `channeld console` and for SQL. Remove this line if you do not need it: rows become smaller.
search = \"words\"
";

const KAFKA: &str = "kafka";
const BROKERS: &str = "brokers";

#[derive(Clone)]
pub(super) struct Sink {
    kind: String,
    /// The key of its path or address, and the value. `None` for standard output.
    to: Option<(&'static str, String)>,
}

/// The sink types. The help shows only the types that were built in.
pub(super) fn kinds() -> impl Iterator<Item = PossibleValue> {
    SINKS.into_iter().map(|kind| PossibleValue::new(kind).hide(!is_built_in(kind)))
}

/// Checks the sink's type, and that `to_file` is possible for it.
pub(super) fn check(kind: &str, to_file: Option<&Path>) -> Result<(), CommandError> {
    if let Some(why) = not_built_in(kind) {
        return Err(CommandError(Exit::Config, format!("the sink {why}")));
    }
    if to_file.is_none() || may_be_in_a_file(kind) {
        return Ok(());
    }
    let other = if kind == "stdout" { "leave out --to-file" } else { "use --to for this sink" };
    Err(CommandError::usage(format!("--to-file is for the address of a webhook or a PostgreSQL database: {other}")))
}

impl Sink {
    pub(super) fn stdout() -> Self {
        Self { kind: "stdout".to_owned(), to: None }
    }

    pub(super) fn of(
        kind: Option<String>,
        to: Option<String>,
        to_file: Option<PathBuf>,
        directory: &Path,
    ) -> Result<Self, Stop> {
        let kind = kind.map_or_else(|| ask_kind(to_file.as_deref()), Ok)?;
        let to = match (kind.as_str(), to, to_file) {
            ("stdout", ..) => None,
            ("file" | "sqlite", to, _) => {
                let default = if kind == "file" { "events.jsonl" } else { "events.db" };
                let path = to.unwrap_or_else(|| default.to_owned());
                Some(("path", directory.join(path).display().to_string()))
            }
            (_, _, Some(file)) => Some(("url_file", directory.join(file).display().to_string())),
            (KAFKA, Some(brokers), None) => Some((BROKERS, brokers)),
            (KAFKA, None, None) => Some((BROKERS, prompt::ask("The sink's brokers, separated by commas")?)),
            (_, Some(url), None) => Some(("url", url)),
            (..) => Some(("url", prompt::ask("The sink's address")?)),
        };
        Ok(Self { kind, to })
    }

    pub(super) fn is_table(&self) -> bool {
        is_table(&self.kind)
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.kind == "stdout"
    }

    /// The keys of the sink, one per line.
    pub(super) fn lines(&self) -> String {
        let quoted = |text: &str| toml_edit::Value::from(text).to_string();
        let place = match &self.to {
            None => String::new(),
            Some((BROKERS, brokers)) => {
                let brokers: Vec<_> = brokers.split(',').map(|broker| quoted(broker.trim())).collect();
                format!("{BROKERS} = [{}]\n", brokers.join(", "))
            }
            Some((key, place)) => format!("{key} = {}\n", quoted(place)),
        };
        let proposed = match &*self.kind {
            "webhook" => FINALIZED,
            kind if is_table(kind) => SEARCH,
            _ => "",
        };
        format!("type = {}\n{place}{proposed}", quoted(&self.kind))
    }

    /// A command that shows the events in the sink. `None` for a type of sink that no common command can read.
    pub(super) fn look(&self) -> Option<String> {
        let (key, place) = self.to.as_ref()?;
        let place = shell_word(place);
        let question = "select time, type, name, status from events order by time desc limit 10";
        match (self.kind.as_str(), *key) {
            ("file", _) => Some(format!("tail -f {place}")),
            ("sqlite", _) => Some(format!("sqlite3 -readonly {place} '{question}'")),
            // The address in the file is secret, so it is not printed.
            ("postgres", "url_file") => Some(format!("psql \"$(cat {place})\" -c '{question}'")),
            ("postgres", _) => Some(format!("psql {place} -c '{question}'")),
            (KAFKA, _) => Some(format!(
                "kafka-console-consumer.sh --bootstrap-server {place} --topic channeld --from-beginning --isolation-level \
                 read_committed"
            )),
            _ => None,
        }
    }
}

/// Asks until the answer is a known sink type that was built in.
fn ask_kind(to_file: Option<&Path>) -> Result<String, Stop> {
    let offered: Vec<_> = SINKS.into_iter().filter(|kind| is_built_in(kind)).collect();
    loop {
        let kind = prompt::ask_or(&format!("Where events go: {}", offered.join(", ")), "file")?;
        let checked = if SINKS.contains(&&*kind) {
            check(&kind, to_file)
        } else {
            Err(CommandError::usage(format!("{} is none of these", printable(&kind))))
        };
        match checked {
            Ok(()) => return Ok(kind),
            Err(failure) if prompt::is_possible() => {
                anstream::eprintln!("{}", failure_for_stderr("", &failure.to_string()));
            }
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Whether addresses of this sink type may contain a secret.
fn may_be_in_a_file(kind: &str) -> bool {
    matches!(kind, "webhook" | "postgres")
}

/// Whether sinks of this type are tables, which a feed and the console can read.
pub(super) fn is_table(kind: &str) -> bool {
    matches!(kind, "sqlite" | "postgres")
}

/// Whether sinks of this type need an address that has no default.
pub(super) fn needs_place(kind: &str) -> bool {
    !matches!(kind, "stdout" | "file" | "sqlite")
}

/// The missing flag for the sink's address, if the sink needs an address and the program cannot ask for it.
pub(super) fn without_place(sink: Option<&str>, has_place: bool) -> Option<&'static str> {
    let kind = sink.filter(|kind| needs_place(kind))?;
    let flag = if may_be_in_a_file(kind) { "--to or --to-file" } else { "--to" };
    (!has_place && !prompt::is_possible()).then_some(flag)
}
