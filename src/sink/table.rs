//! What the sinks that write tables have in common: the columns, and how a record becomes a row.
//!
//! # Invariants
//!
//! * **One definition.** What a column is called and holds is the same in every database; only its type differs.
//! * **Nothing is lost in a row.** What another column cannot hold stands in `record`, which is the sink's body byte for byte.
//! * **No I/O.**

use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;
use strum::{EnumString, IntoStaticStr, VariantNames};
use uuid::Uuid;

use super::{LaneRef, Position, SinkError, Undelivered};
use proof::event::Offset;
use proof::verify::Hash;
use record::{Facts, Field, Message, Record};

mod columns;
#[cfg(test)]
mod tests;

pub(super) use columns::{COLUMNS, Column, Kind};

/// Rows of so many bytes are made before other tasks run, in two or three milliseconds.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Replaces a missing event id in the unique index. Both databases treat two nulls as distinct.
pub(super) const NO_ID: &str = "00000000-0000-0000-0000-000000000000";

/// What follows a table's name in that of the table with the positions of lanes.
const PROGRESS: &str = "_progress";

/// What can be searched for in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Search {
    /// Nothing.
    #[default]
    None,
    /// Words.
    Words,
    /// Any part of a word, of three characters at least.
    Trigrams,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    Number(i64),
    Text(Box<str>),
    /// A text that the record shares.
    Json(Bytes),
    Id(Uuid),
    Time(Timestamp),
    Hash(Hash),
}

/// A row, in the order of [`COLUMNS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(pub(super) Vec<Cell>);

/// The rows of messages, a part at a time.
pub(super) struct Parts<'a> {
    messages: &'a [Message],
    /// The most rows of a part.
    most: usize,
    make: fn(&Message, Timestamp) -> Row,
    /// How many messages are in a part that was made.
    made: usize,
}

/// What a row is made of.
struct Source<'a> {
    message: &'a Message,
    record: &'a Record,
    facts: &'a Facts,
    delivered: Timestamp,
}

impl Row {
    /// The row of a message that is written at `delivered`.
    pub(super) fn of(message: &Message, delivered: Timestamp) -> Self {
        let record = message.record();
        let source = Source { message, record, facts: record.facts(), delivered };
        Self(COLUMNS.iter().map(|column| (column.cell)(&source)).collect())
    }
}

impl<'a> Parts<'a> {
    pub(super) fn of(messages: &'a [Message], most: usize, make: fn(&Message, Timestamp) -> Row) -> Self {
        Self { messages, most, make, made: 0 }
    }

    /// Makes the next part: its place among the messages, and its rows. Of large events it yields to other tasks in between.
    pub(super) async fn next(&mut self) -> Option<(Range<usize>, Vec<Row>)> {
        let place = self.made..self.messages.len().min(self.made + self.most);
        let (mut rows, mut bytes) = (Vec::with_capacity(place.len()), 0);
        for message in &self.messages[place.clone()] {
            rows.push((self.make)(message, Timestamp::now()));
            bytes += message.body().len();
            if bytes > BYTES_AT_ONCE {
                bytes = 0;
                tokio::task::yield_now().await;
            }
        }
        self.made = place.end;
        (!rows.is_empty()).then_some((place, rows))
    }
}

impl Source<'_> {
    fn fact(&self, field: Field) -> Cell {
        text(self.facts.get(field))
    }

    /// A fact that is an id; what is none stands in `record` alone.
    fn id(&self, field: Field) -> Cell {
        let id = self.facts.get(field).and_then(|text| Uuid::try_parse(text).ok());
        id.map_or(Cell::Null, Cell::Id)
    }
}

/// Databases take no NUL in a text: it stands as the escape that JSON has for it.
fn text(text: Option<&str>) -> Cell {
    match text {
        None => Cell::Null,
        Some(text) if text.contains('\0') => Cell::Text(text.replace('\0', "\\u0000").into()),
        Some(text) => Cell::Text(text.into()),
    }
}

/// The table with the positions of lanes.
pub(super) fn progress(table: &str) -> String {
    format!("{table}{PROGRESS}")
}

/// An identifier in quotes: it may be a word of SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// The names of the columns, with commas between.
pub(super) fn names() -> String {
    joined(COLUMNS.iter().map(|column| column.name.to_owned()), ", ")
}

/// An expression over the columns that a full-text search looks into: their texts, with spaces between.
pub(super) fn searched(text_of: impl Fn(&Column) -> String) -> String {
    joined(COLUMNS.iter().filter(|column| column.is_searched).map(text_of), " || ' ' || ")
}

pub(super) fn joined(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    parts.into_iter().collect::<Vec<_>>().join(between)
}

/// Adds its size to why an event is refused: what refuses it may be a limit.
pub(super) fn with_size(mut undelivered: Undelivered, messages: &[Message]) -> Undelivered {
    if let SinkError::Refused { message, .. } = &mut undelivered.error {
        let bytes = messages[undelivered.delivered].body().len();
        *message = format!("{message}; its record has {bytes} bytes");
    }
    undelivered
}

/// The name of the unique index that identifies an event.
pub(super) fn identity_index(table: &str) -> String {
    format!("{table}_identity")
}

/// The reason why a lane has no position.
pub(super) fn without_row(progress: &str) -> String {
    format!("table {progress} has no row for this lane")
}

/// The error of a delivery that found another position than the lane expected.
pub(super) fn displaced(progress: &str, found: &Position, expected: Option<Offset>) -> SinkError {
    let shown = |offset: Option<Offset>| match offset {
        Some(offset) => format!("at offset {offset}"),
        None => "before the first event".to_owned(),
    };
    let expected = shown(expected);
    SinkError::Displaced(match found {
        Position::At(found) => format!(
            "the lane in table {progress} is {}, expected {expected}: the table was restored, or another program changed it",
            shown(*found)
        ),
        _ => format!("{}, expected {expected}: the table was restored or made again", without_row(progress)),
    })
}

/// What a lane is told where the table has a later epoch of it.
pub(super) fn overtaken(lane: &LaneRef, epoch: u64, progress: &str) -> SinkError {
    let (channel, id, sink) = (&lane.channel.name, lane.channel.id, &lane.sink);
    SinkError::Overtaken(format!(
        "table {progress} says that another instance has channel {channel} with a later claim than number {epoch}; if the \
         state was made anew and no other instance runs, run: update {progress} set epoch = 0 where channel_id = '{id}' and \
         sink = '{sink}';"
    ))
}
