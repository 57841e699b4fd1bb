//! The columns of a table.

use jiff::Timestamp;

use super::{Cell, Source, text};
use record::Field;

/// The start of the year 1. Some databases cannot store an earlier time.
const EARLIEST: i64 = -62_135_596_800;

/// A column.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Whether each row has a value.
    pub(crate) is_needed: bool,
    /// Whether a full-text search covers it.
    pub(crate) is_searched: bool,
    /// Its value in a row.
    pub(super) cell: fn(&Source<'_>) -> Cell,
}

/// The kind of values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Id,
    Number,
    Text,
    Time,
    Hash,
    Json,
}

impl Kind {
    /// Its type in PostgreSQL.
    pub(crate) fn postgres(self) -> &'static str {
        match self {
            Self::Id => "uuid",
            Self::Number => "bigint",
            Self::Text => "text",
            Self::Time => "timestamptz",
            Self::Hash => "bytea",
            Self::Json => "jsonb",
        }
    }

    /// Its type in SQLite. Ids, times and hashes are texts, written as in the record.
    pub(crate) fn sqlite(self) -> &'static str {
        match self {
            Self::Number => "integer",
            Self::Id | Self::Text | Self::Time | Self::Hash | Self::Json => "text",
        }
    }
}

const fn needed(name: &'static str, kind: Kind, cell: fn(&Source<'_>) -> Cell) -> Column {
    Column { name, kind, is_needed: true, is_searched: false, cell }
}

const fn optional(name: &'static str, kind: Kind, cell: fn(&Source<'_>) -> Cell) -> Column {
    Column { name, kind, is_needed: false, is_searched: false, cell }
}

const fn searched(name: &'static str, kind: Kind, cell: fn(&Source<'_>) -> Cell) -> Column {
    Column { name, kind, is_needed: false, is_searched: true, cell }
}

/// All columns. A new column must be added at the end and must be optional, because existing tables do not have it.
pub(crate) const COLUMNS: &[Column] = &[
    needed("channel_id", Kind::Id, |of| Cell::Id(of.record.channel.id.0)),
    needed("event_offset", Kind::Number, |of| Cell::Number(of.record.offset.get())),
    needed("channel", Kind::Text, |of| text(Some(&of.record.channel.name))),
    searched("event_id", Kind::Id, |of| of.record.event_id.map_or(Cell::Null, |id| Cell::Id(id.0))),
    Column { is_needed: true, ..searched("type", Kind::Text, |of| text(Some(of.record.kind.as_ref()))) },
    searched("name", Kind::Text, |of| of.fact(Field::EventName)),
    searched("source", Kind::Text, |of| of.fact(Field::Address)),
    searched("service", Kind::Text, |of| of.fact(Field::Service)),
    searched("network", Kind::Text, |of| of.fact(Field::ChainSelector)),
    optional("time", Kind::Time, |of| {
        let second = of.record.time.filter(|second| *second >= EARLIEST);
        second.and_then(|second| Timestamp::from_second(second).ok()).map_or(Cell::Null, Cell::Time)
    }),
    optional("received", Kind::Time, |of| of.record.received.map_or(Cell::Null, Cell::Time)),
    needed("delivered", Kind::Time, |of| Cell::Time(of.delivered)),
    searched("status", Kind::Text, |of| of.fact(Field::Status)),
    searched("status_reason", Kind::Text, |of| text(of.facts.status_reason())),
    searched("watcher_id", Kind::Id, |of| of.id(Field::WatcherId)),
    searched("operation_id", Kind::Id, |of| of.id(Field::OperationId)),
    searched("wallet_operation_id", Kind::Text, |of| of.fact(Field::WalletOperationId)),
    searched("wallet_id", Kind::Id, |of| of.id(Field::WalletId)),
    searched("query_id", Kind::Id, |of| of.id(Field::QueryId)),
    needed("verification", Kind::Text, |of| of.fact(Field::Verification)),
    searched("digest", Kind::Hash, |of| of.record.digest.map_or(Cell::Null, Cell::Hash)),
    optional("workflow_id", Kind::Hash, |of| of.record.workflow_id.map_or(Cell::Null, Cell::Hash)),
    searched("decoded", Kind::Json, |of| {
        of.record.decoded().map_or(Cell::Null, |decoded| Cell::Json(of.record.json.slice_ref(decoded)))
    }),
    needed("record", Kind::Text, |of| Cell::Json(of.message.body().clone())),
    optional("proof", Kind::Json, |of| of.message.proof().map_or(Cell::Null, Cell::Json)),
];
