//! Conditions and parameters of SQL statements about a table, for both databases.
//!
//! # Invariants
//!
//! * **A statement contains no value.** Table names are identifiers that the configuration has checked. Everything else is a
//!   parameter.

use jiff::Timestamp;

use super::excerpt::{SEARCHED_CHARACTERS, SEARCHED_COLUMNS};
use super::filter::{EventFilter, PagePosition};
use super::rows::LISTED;
use proof::event::ChannelId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub(crate) enum Dialect {
    #[strum(serialize = "SQLite")]
    Sqlite,
    #[strum(serialize = "PostgreSQL")]
    Postgres,
}

/// The conditions and parameters of a statement that is being built.
pub(super) struct Statement {
    dialect: Dialect,
    pub(super) conditions: Vec<String>,
    pub(super) values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableRange {
    /// The rows later than a time.
    Since(Timestamp),
    Timed,
    /// The rows without a time. They are listed last.
    Timeless,
}

/// The columns that identify a row. Two events can have the same offset, and an event can lack an id.
pub(super) const KEY: &str = "event_offset, channel_id, coalesce(event_id, '00000000-0000-0000-0000-000000000000')";

pub(super) const NEWEST_FIRST: &str = "\"time\" desc, event_offset desc, channel_id desc, \
    coalesce(event_id, '00000000-0000-0000-0000-000000000000') desc";

impl Statement {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, conditions: Vec::new(), values: Vec::new() }
    }

    /// Adds a parameter and returns its name in the statement.
    pub(super) fn text(&mut self, value: &dyn ToString) -> String {
        self.values.push(value.to_string());
        let sign = if self.dialect == Dialect::Sqlite { '?' } else { '$' };
        format!("{sign}{}", self.values.len())
    }

    pub(super) fn number(&mut self, value: i64) -> String {
        format!("cast({} as bigint)", self.text(&value))
    }

    pub(super) fn channel(&mut self, channel: ChannelId) -> String {
        let cast = if self.dialect == Dialect::Postgres { "::uuid" } else { "" };
        self.text(&channel) + cast
    }

    fn time(&mut self, time: Timestamp) -> String {
        let parameter = self.text(&format!("{time:.3}"));
        if self.dialect == Dialect::Postgres { format!("{parameter}::timestamptz") } else { parameter }
    }

    /// Adds the conditions of a filter, except its words.
    pub(super) fn filtered(&mut self, filter: &EventFilter) {
        for (facet, values) in &filter.chosen {
            let values: Vec<_> = values.iter().map(|value| self.text(value)).collect();
            self.conditions.push(format!("\"{}\" in ({})", facet.column(), values.join(", ")));
        }
        for (limit, comparison) in [(filter.from, ">="), (filter.to, "<=")] {
            if let Some(limit) = limit {
                let limit = self.time(limit);
                self.conditions.push(format!("\"time\" {comparison} {limit}"));
            }
        }
    }

    /// Restricts the statement to the rows of a range that are below a position.
    pub(super) fn within(&mut self, range: TableRange, below: Option<&PagePosition>) {
        match range {
            TableRange::Since(since) => {
                let since = self.time(since);
                self.conditions.push(format!("\"time\" > {since}"));
            }
            // SQLite reads the rows by the index on the time only if the condition is a comparison. Every time is a text.
            TableRange::Timed if self.dialect == Dialect::Sqlite => self.conditions.push("\"time\" > ''".to_owned()),
            TableRange::Timed => self.conditions.push("\"time\" is not null".to_owned()),
            TableRange::Timeless => self.conditions.push("\"time\" is null".to_owned()),
        }
        let Some(below) = below else { return };
        match (range, below.time) {
            // Rows without a time are listed last: nothing with a time is below them.
            (TableRange::Since(_) | TableRange::Timed, None) => self.conditions.push("false".to_owned()),
            (TableRange::Since(_) | TableRange::Timed, Some(time)) => {
                let (time, key) = (self.time(time), self.key(below));
                // The second condition implies the first one, but only the first one can use the index on the time.
                self.conditions.push(format!("\"time\" <= {time} and (\"time\", {KEY}) < ({time}, {key})"));
            }
            (TableRange::Timeless, None) => {
                let key = self.key(below);
                self.conditions.push(format!("({KEY}) < ({key})"));
            }
            (TableRange::Timeless, Some(_)) => {}
        }
    }

    /// Restricts the statement to the rows of one channel at one offset.
    pub(super) fn at(&mut self, channel: ChannelId, offset: i64) {
        let (channel, offset) = (self.channel(channel), self.number(offset));
        self.conditions.push(format!("channel_id = {channel} and event_offset = {offset}"));
    }

    /// The values of [`KEY`] in the row at a position.
    pub(super) fn key(&mut self, position: &PagePosition) -> String {
        let cast = if self.dialect == Dialect::Postgres { "::uuid" } else { "" };
        let (offset, channel) = (self.number(position.offset), self.channel(position.channel));
        format!("{offset}, {channel}, {}{cast}", self.text(&position.event))
    }

    /// Restricts the statement to rows whose texts contain all the words, without an index.
    pub(super) fn looked_through(&mut self, words: &[String]) {
        let like = if self.dialect == Dialect::Postgres { "ilike" } else { "like" };
        for word in words {
            let pattern = self.text(&pattern(word));
            let texts = SEARCHED_COLUMNS.map(|column| text(self.dialect, column));
            self.conditions.push(format!("({}) {like} {pattern} escape '\\'", texts.join(" || ' ' || ")));
        }
    }

    /// All conditions, joined with `and`.
    pub(super) fn conditions(&self) -> String {
        if self.conditions.is_empty() { "true".to_owned() } else { self.conditions.join(" and ") }
    }
}

/// The columns [`LISTED`] as texts. In PostgreSQL, each text gets another name than its column, because the rows are
/// sorted by the column and not by the text.
pub(super) fn columns(dialect: Dialect) -> String {
    let column = |name: &str| match (dialect, name) {
        (Dialect::Sqlite, name) => format!("\"{name}\""),
        (Dialect::Postgres, "time" | "received" | "delivered") => time(dialect, name),
        (Dialect::Postgres, name) => format!("\"{name}\"::text as {name}_text"),
    };
    LISTED.map(column).join(", ")
}

/// A time as text, in the format that SQLite tables use.
pub(super) fn time(dialect: Dialect, time: &str) -> String {
    match dialect {
        Dialect::Sqlite => time.to_owned(),
        Dialect::Postgres => format!("to_char({time} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"),
    }
}

/// A column as text; empty if the column is null.
pub(super) fn text(dialect: Dialect, column: &str) -> String {
    match (dialect, column) {
        (Dialect::Postgres, "digest") => "coalesce('0x' || encode(digest, 'hex'), '')".to_owned(),
        (Dialect::Postgres, column) => format!("coalesce(\"{column}\"::text, '')"),
        (Dialect::Sqlite, column) => format!("ifnull(\"{column}\", '')"),
    }
}

/// The columns [`SEARCHED_COLUMNS`], cut to the length in which an [`excerpt`](super::excerpt) is searched.
pub(super) fn texts(dialect: Dialect) -> String {
    SEARCHED_COLUMNS.map(|column| format!("substr({}, 1, {SEARCHED_CHARACTERS})", text(dialect, column))).join(", ")
}

/// A pattern that matches a text anywhere.
pub(super) fn pattern(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}
