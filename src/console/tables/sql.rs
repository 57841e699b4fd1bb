//! SQL statements over a table, for both databases: conditions and their parameters.
//!
//! # Invariants
//!
//! * **A statement contains no value.** Table names are identifiers that the configuration has checked. Everything else is a
//!   parameter.

use jiff::Timestamp;

use super::filter::{Filter, Place};
use super::piece::{LOOKED_INTO, LOOKED_THROUGH};
use super::windows::Window;

/// The columns of a list, in the order in which [`Row`](super::rows::Row) is read.
pub(super) const LISTED: [&str; 14] = [
    "channel",
    "channel_id",
    "event_offset",
    "event_id",
    "type",
    "name",
    "source",
    "service",
    "network",
    "time",
    "received",
    "delivered",
    "status",
    "verification",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Texts(Vec<String>),
    Number(i64),
}

/// The conditions and parameters of a statement that is being built.
#[derive(Clone)]
pub(super) struct Statement {
    dialect: Dialect,
    pub(super) conditions: Vec<String>,
    pub(super) values: Vec<Value>,
}

/// The order of rows.
pub(super) const NEWEST_FIRST: &str = "\"time\" desc, event_offset desc, channel_id desc, \
    coalesce(event_id, '00000000-0000-0000-0000-000000000000') desc";

/// The event's id in the sort order. Two events can have the same offset, and an event can lack an id.
const EVENT: &str = "coalesce(event_id, '00000000-0000-0000-0000-000000000000')";

impl Statement {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, conditions: Vec::new(), values: Vec::new() }
    }

    /// Adds a parameter and returns its name in the statement.
    pub(super) fn parameter(&mut self, value: Value) -> String {
        self.values.push(value);
        let sign = if self.dialect == Dialect::Sqlite { '?' } else { '$' };
        format!("{sign}{}", self.values.len())
    }

    fn time(&mut self, time: Timestamp) -> String {
        let parameter = self.parameter(Value::Text(format!("{time:.3}")));
        if self.dialect == Dialect::Postgres { format!("{parameter}::timestamptz") } else { parameter }
    }

    /// Adds the conditions of a filter, except its words.
    pub(super) fn filtered(&mut self, filter: &Filter) {
        for (facet, values) in &filter.chosen {
            let column = facet.column();
            let condition = match self.dialect {
                Dialect::Postgres => {
                    let values = self.parameter(Value::Texts(values.clone()));
                    format!("\"{column}\" = any({values})")
                }
                Dialect::Sqlite => {
                    let values: Vec<_> =
                        values.iter().map(|value| self.parameter(Value::Text(value.clone()))).collect();
                    format!("\"{column}\" in ({})", values.join(", "))
                }
            };
            self.conditions.push(condition);
        }
        if let Some(from) = filter.from {
            let from = self.time(from);
            self.conditions.push(format!("\"time\" >= {from}"));
        }
        if let Some(to) = filter.to {
            let to = self.time(to);
            self.conditions.push(format!("\"time\" <= {to}"));
        }
    }

    /// Restricts the statement to a time window, and within the window to rows below a place.
    pub(super) fn within(&mut self, window: Window, below: Option<&Place>) {
        match window {
            Window::Timeless => self.conditions.push("\"time\" is null".to_owned()),
            Window::Times { after, through } => {
                self.conditions.push("\"time\" is not null".to_owned());
                if let Some(after) = after {
                    let after = self.time(after);
                    self.conditions.push(format!("\"time\" > {after}"));
                }
                if let Some(through) = through {
                    let through = self.time(through);
                    self.conditions.push(format!("\"time\" <= {through}"));
                }
            }
        }
        let Some(Place { time, offset, channel, event }) = below else { return };
        let cast = if self.dialect == Dialect::Postgres { "::uuid" } else { "" };
        match (window, time) {
            (Window::Times { .. }, Some(time)) => {
                let time = self.time(*time);
                let offset = self.parameter(Value::Number(*offset));
                let channel = self.parameter(Value::Text(channel.to_string()));
                let event = self.parameter(Value::Text(event.to_string()));
                let place = format!("({time}, {offset}, {channel}{cast}, {event}{cast})");
                self.conditions.push(format!("(\"time\", event_offset, channel_id, {EVENT}) < {place}"));
            }
            (Window::Timeless, None) => {
                let offset = self.parameter(Value::Number(*offset));
                let channel = self.parameter(Value::Text(channel.to_string()));
                let event = self.parameter(Value::Text(event.to_string()));
                let place = format!("({offset}, {channel}{cast}, {event}{cast})");
                self.conditions.push(format!("(event_offset, channel_id, {EVENT}) < {place}"));
            }
            _ => {}
        }
    }

    /// Restricts the statement to rows whose texts contain all the words, without an index.
    pub(super) fn looked_through(&mut self, words: &[String]) {
        let like = if self.dialect == Dialect::Postgres { "ilike" } else { "like" };
        for word in words {
            let pattern = self.parameter(Value::Text(pattern(word)));
            let texts = LOOKED_THROUGH.map(|column| text(self.dialect, column));
            self.conditions.push(format!("({}) {like} {pattern} escape '\\'", texts.join(" || ' ' || ")));
        }
    }

    /// All conditions, joined with `and`.
    pub(super) fn conditions(&self) -> String {
        if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" and ") }
    }
}

/// A column as text; empty if the column is null.
fn text(dialect: Dialect, column: &str) -> String {
    match (dialect, column) {
        (Dialect::Postgres, "digest") => "coalesce('0x' || encode(digest, 'hex'), '')".to_owned(),
        (Dialect::Postgres, column) => format!("coalesce(\"{column}\"::text, '')"),
        (Dialect::Sqlite, column) => format!("ifnull(\"{column}\", '')"),
    }
}

/// The columns [`LOOKED_THROUGH`], cut to the length in which a [`piece`](super::piece) is searched.
pub(super) fn texts(dialect: Dialect) -> String {
    LOOKED_THROUGH.map(|column| format!("substr({}, 1, {LOOKED_INTO})", text(dialect, column))).join(", ")
}

/// A pattern that matches a text anywhere.
pub(super) fn pattern(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}

/// A query for SQLite's full-text search: rows that contain all the words. With `beginning`, the last word also matches
/// longer words that begin with it.
pub(super) fn fts(words: &[String], beginning: bool) -> String {
    let quoted = |word: &String| format!("\"{}\"", word.replace('"', "\"\""));
    let query = words.iter().map(quoted).collect::<Vec<_>>().join(" ");
    if beginning { query + "*" } else { query }
}
