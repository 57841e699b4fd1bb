//! The columns of the sinks that write tables, and the conversion of a record to a row.
//!
//! # Invariants
//!
//! * **One definition.** A column has the same name and content in every database. Only the column's type differs.
//! * **Nothing is lost in a row.** The column `record` contains the body of the message byte for byte. It therefore also
//!   contains the values that no other column can store.
//! * **No I/O.**

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use super::{LaneRef, Position, SinkError, Undelivered};
use proof::event::Offset;
use proof::verify::Hash;
use record::{Confidence, Facts, Field, Message, Record};

mod group;
pub(super) mod operations;
pub(super) mod probe;
#[cfg(test)]
mod tests;

pub(super) use group::{RowLimit, next_rows};
use operations::Operation;

/// The start of the year 1. Some databases cannot store an earlier time.
const EARLIEST: i64 = -62_135_596_800;

/// Replaces a missing event id in the unique index. Both databases treat two nulls as distinct, so the index would accept
/// an event without an id twice.
pub(super) const NO_ID: &str = "00000000-0000-0000-0000-000000000000";

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: CellKind,
    /// Whether each row has a value in this column.
    pub(super) is_needed: bool,
    /// Whether a full-text search covers this column.
    pub(super) is_searched: bool,
    cell: fn(&RowSource<'_>) -> Cell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellKind {
    Id,
    Number,
    Text,
    Time,
    Hash,
    Json,
}

impl CellKind {
    pub(super) fn postgres(self) -> &'static str {
        match self {
            Self::Id => "uuid",
            Self::Number => "bigint",
            Self::Text => "text",
            Self::Time => "timestamptz",
            Self::Hash => "bytea",
            Self::Json => "jsonb",
        }
    }

    /// The type in SQLite. Ids, times and hashes are texts in the same form as in the record.
    pub(super) fn sqlite(self) -> &'static str {
        match self {
            Self::Number => "integer",
            Self::Id | Self::Text | Self::Time | Self::Hash | Self::Json => "text",
        }
    }
}

const fn needed(name: &'static str, kind: CellKind, cell: fn(&RowSource<'_>) -> Cell) -> Column {
    Column { name, kind, is_needed: true, is_searched: false, cell }
}

const fn optional(name: &'static str, kind: CellKind, cell: fn(&RowSource<'_>) -> Cell) -> Column {
    Column { name, kind, is_needed: false, is_searched: false, cell }
}

const fn in_search(name: &'static str, kind: CellKind, cell: fn(&RowSource<'_>) -> Cell) -> Column {
    Column { name, kind, is_needed: false, is_searched: true, cell }
}

/// All columns. A new column must be added at the end and must be optional, because existing tables do not have it.
pub(super) const COLUMNS: &[Column] = &[
    needed("channel_id", CellKind::Id, |of| Cell::Id(of.record.channel.id.0)),
    needed("event_offset", CellKind::Number, |of| Cell::Number(of.record.offset.get())),
    needed("channel", CellKind::Text, |of| text(Some(&of.record.channel.name))),
    in_search("event_id", CellKind::Id, |of| of.record.event_id.map_or(Cell::Null, |id| Cell::Id(id.0))),
    Column { is_needed: true, ..in_search("type", CellKind::Text, |of| text(Some(of.record.kind.as_ref()))) },
    in_search("name", CellKind::Text, |of| of.fact(Field::EventName)),
    in_search("source", CellKind::Text, |of| of.fact(Field::Address)),
    in_search("service", CellKind::Text, |of| of.fact(Field::Service)),
    in_search("network", CellKind::Text, |of| of.fact(Field::ChainSelector)),
    optional("time", CellKind::Time, |of| time(of.record).map_or(Cell::Null, Cell::Time)),
    optional("received", CellKind::Time, |of| of.record.received.map_or(Cell::Null, Cell::Time)),
    needed("delivered", CellKind::Time, |of| Cell::Time(of.delivered)),
    in_search("status", CellKind::Text, |of| of.fact(Field::Status)),
    in_search("status_reason", CellKind::Text, |of| text(of.facts.status_reason())),
    in_search("watcher_id", CellKind::Id, |of| of.id(Field::WatcherId)),
    in_search("operation_id", CellKind::Id, |of| of.id(Field::OperationId)),
    in_search("wallet_operation_id", CellKind::Text, |of| of.fact(Field::WalletOperationId)),
    in_search("wallet_id", CellKind::Id, |of| of.id(Field::WalletId)),
    in_search("query_id", CellKind::Id, |of| of.id(Field::QueryId)),
    needed("verification", CellKind::Text, |of| of.fact(Field::Verification)),
    in_search("digest", CellKind::Hash, |of| of.record.digest.map_or(Cell::Null, Cell::Hash)),
    optional("workflow_id", CellKind::Hash, |of| of.record.workflow_id.map_or(Cell::Null, Cell::Hash)),
    in_search("decoded", CellKind::Json, |of| {
        of.record.decoded().map_or(Cell::Null, |decoded| Cell::Json(of.record.json.slice_ref(decoded)))
    }),
    needed("record", CellKind::Text, |of| Cell::Json(of.message.body().clone())),
    optional("proof", CellKind::Json, |of| of.message.proof().map_or(Cell::Null, Cell::Json)),
    optional("confidence", CellKind::Text, |of| text(of.record.confidence.map(Confidence::name))),
    optional("network_name", CellKind::Text, |of| text(of.record.network)),
];

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

impl Cell {
    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Json(json) => json.len(),
            _ => 32,
        }
    }
}

/// The row of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// In the order of [`COLUMNS`].
    pub(super) cells: Vec<Cell>,
    /// The state of an operation according to the event, if the sink has a table of operations.
    pub(super) operation: Option<Box<Operation>>,
}

struct RowSource<'a> {
    message: &'a Message,
    record: &'a Record,
    facts: &'a Facts,
    delivered: Timestamp,
}

impl Row {
    /// The row of a message that is written at `delivered`. `has_operations` says whether the sink has a table of operations.
    pub(super) fn of(message: &Message, delivered: Timestamp, has_operations: bool) -> Self {
        let record = message.record();
        let source = RowSource { message, record, facts: record.facts(), delivered };
        let cells = COLUMNS.iter().map(|column| (column.cell)(&source)).collect();
        let operation = has_operations.then(|| Operation::of(record, delivered)).flatten();
        Self { cells, operation: operation.map(Box::new) }
    }

    /// The offset and the id of the event: the second and the fourth of [`COLUMNS`].
    pub(super) fn key(&self) -> [&Cell; 2] {
        [&self.cells[1], &self.cells[3]]
    }
}

/// The rows without repeated events, so that each row gets its own position. The rows are in the order of their offsets.
pub(super) fn distinct(rows: &[Row]) -> Vec<&Row> {
    let is_first = |at: usize| {
        let [offset, id] = rows[at].key();
        rows[..at].iter().rev().take_while(|before| before.key()[0] == offset).all(|before| before.key()[1] != id)
    };
    (0..rows.len()).filter(|at| is_first(*at)).map(|at| &rows[at]).collect()
}

impl RowSource<'_> {
    fn fact(&self, field: Field) -> Cell {
        text(self.facts.get(field))
    }

    /// A fact as an id. If the fact is not an id, the cell is null, and only the column `record` contains the value.
    fn id(&self, field: Field) -> Cell {
        let id = self.facts.get(field).and_then(|text| Uuid::try_parse(text).ok());
        id.map_or(Cell::Null, Cell::Id)
    }
}

/// The time of an event, if databases can store it.
fn time(record: &Record) -> Option<Timestamp> {
    let second = record.time.filter(|second| *second >= EARLIEST)?;
    Timestamp::from_second(second).ok()
}

/// A text. A NUL, which databases do not accept, is replaced by its JSON escape.
fn text(text: Option<&str>) -> Cell {
    match text {
        None => Cell::Null,
        Some(text) if text.contains('\0') => Cell::Text(text.replace('\0', "\\u0000").into()),
        Some(text) => Cell::Text(text.into()),
    }
}

/// The column with the position: the number of an event in the order of delivery. It is not in [`COLUMNS`], because the statement
/// that writes the row assigns the position. In the table of lanes, the column with this name contains the newest position of the
/// lane's channel.
///
/// * **Dense.** The positions of a channel in a table begin with 1, and each new row gets the next one. An event that already has a
///   row gets no other position and leaves no gap.
/// * **Never reused.** The newest position is also in the table of lanes. It therefore survives the deletion of rows.
/// * **Final.** A position never changes. A reader that has seen position P has seen every earlier position.
///
/// A row without a position was written by a version that did not assign positions.
pub(super) const POSITION: &str = "position";

/// The name of the unique index over the channel and the position.
pub(super) fn position_index(table: &str) -> String {
    format!("{table}_position")
}

/// The name of the table with the cursors and the leases of the feed's consumers.
pub(super) fn consumers(table: &str) -> String {
    format!("{table}_consumers")
}

/// The name of the table with the positions of lanes.
pub(super) fn progress(table: &str) -> String {
    format!("{table}_progress")
}

/// An identifier in quotes, because it may be an SQL keyword.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// The quoted names of the columns, separated by commas.
pub(super) fn names() -> String {
    joined(COLUMNS.iter().map(|column| quoted(column.name)), ", ")
}

/// The columns that are missing in a table with the columns `found`. If a needed column is missing, the table belongs to
/// another program.
pub(super) fn lacking(found: &[String]) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(|column| !found.iter().any(|name| name == column.name))
}

/// An expression over the columns that a full-text search covers: their texts, separated by spaces.
pub(super) fn searched(text_of: impl Fn(&Column) -> String) -> String {
    joined(COLUMNS.iter().filter(|column| column.is_searched).map(text_of), " || ' ' || ")
}

pub(super) fn joined(parts: impl IntoIterator<Item = String>, between: &str) -> String {
    parts.into_iter().collect::<Vec<_>>().join(between)
}

/// Adds the size of a refused event to the error message, because the size may have exceeded a limit.
pub(super) fn with_size(mut undelivered: Undelivered, messages: &[Message]) -> Undelivered {
    if let SinkError::Refused { message, .. } = &mut undelivered.error {
        let bytes = messages[undelivered.delivered].body().len();
        *message = format!("{message}; its record has {bytes} bytes");
    }
    undelivered
}

/// The reason for the refusal of a row that was not inserted although the database raised no error.
pub(super) const SUPPRESSED: &str = "a trigger of the table suppresses rows without an error: remove it, and exclude events with the filter of the sink";

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
        _ => format!("{}, expected {expected}: the table was restored or created again", without_row(progress)),
    })
}

/// The error for a lane if the table has a later epoch of the lane.
pub(super) fn overtaken(lane: &LaneRef, epoch: u64, progress: &str) -> SinkError {
    let (channel, id, sink) = (&lane.channel.name, lane.channel.id, &lane.sink);
    SinkError::Overtaken(format!(
        "table {progress} shows that another instance owns channel {channel} with a later epoch than {epoch}; if the state was created again and no other instance is running, run: update {progress} set epoch = 0 where channel_id = '{id}' and \
         sink = '{sink}';"
    ))
}
