//! The columns of the sinks that write tables, and how a record becomes a row.
//!
//! # Invariants
//!
//! * **One definition.** A column has the same name and content in every database. Only its type differs.
//! * **Nothing is lost in a row.** The column `record` is the sink's body byte for byte, so it also has every value that no
//!   other column can store.
//! * **No I/O.**

use std::ops::Range;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use super::{LaneRef, Position, SinkError, Undelivered};
use proof::event::Offset;
use proof::verify::Hash;
use record::{Facts, Field, Message, Record};

mod columns;
#[cfg(test)]
mod tests;

pub(super) use columns::{COLUMNS, Column, Kind};

/// How many bytes of rows are made before other tasks may run. This takes two or three milliseconds.
const BYTES_AT_ONCE: usize = 1 << 20;

/// Replaces a missing event id in the unique index. Both databases treat two nulls as distinct.
pub(super) const NO_ID: &str = "00000000-0000-0000-0000-000000000000";

/// The suffix that makes a table's name the name of the table with the positions of lanes.
const PROGRESS: &str = "_progress";

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    Number(i64),
    Text(Box<str>),
    /// A text that shares its memory with the record.
    Json(Bytes),
    Id(Uuid),
    Time(Timestamp),
    Hash(Hash),
}

/// A row, in the order of [`COLUMNS`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row(pub(super) Vec<Cell>);

/// Makes the rows of messages, one part at a time.
pub(super) struct Parts<'a> {
    messages: &'a [Message],
    /// The most rows in a part.
    most: usize,
    make: fn(&Message, Timestamp) -> Row,
    /// How many messages are in the parts that were made.
    made: usize,
}

/// The sources of a row.
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

    /// Makes the next part: its range among the messages, and its rows. If events are large, it yields to other tasks in
    /// between.
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

    /// A fact that is an id. A value that is not an id is only in `record`.
    fn id(&self, field: Field) -> Cell {
        let id = self.facts.get(field).and_then(|text| Uuid::try_parse(text).ok());
        id.map_or(Cell::Null, Cell::Id)
    }
}

/// A text. A NUL, which databases do not accept, is replaced by its JSON escape.
fn text(text: Option<&str>) -> Cell {
    match text {
        None => Cell::Null,
        Some(text) if text.contains('\0') => Cell::Text(text.replace('\0', "\\u0000").into()),
        Some(text) => Cell::Text(text.into()),
    }
}

/// The name of the table with the positions of lanes.
pub(super) fn progress(table: &str) -> String {
    format!("{table}{PROGRESS}")
}

/// An identifier in quotes, because it may be an SQL keyword.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// The names of the columns, separated by commas.
pub(super) fn names() -> String {
    joined(COLUMNS.iter().map(|column| column.name.to_owned()), ", ")
}

/// An expression over the columns that a full-text search covers: their texts, separated by spaces.
pub(super) fn searched(text_of: impl Fn(&Column) -> String) -> String {
    joined(COLUMNS.iter().filter(|column| column.is_searched).map(text_of), " || ' ' || ")
}

pub(super) fn joined(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    parts.into_iter().collect::<Vec<_>>().join(between)
}

/// Adds the size of a refused event to the error message, because it may have exceeded a limit.
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

/// The error for a lane if the table has a later epoch of the lane.
pub(super) fn overtaken(lane: &LaneRef, epoch: u64, progress: &str) -> SinkError {
    let (channel, id, sink) = (&lane.channel.name, lane.channel.id, &lane.sink);
    SinkError::Overtaken(format!(
        "table {progress} shows that another instance owns channel {channel} with a later claim than number {epoch}; if the state was created again and no other instance is running, run: update {progress} set epoch = 0 where channel_id = '{id}' and \
         sink = '{sink}';"
    ))
}
