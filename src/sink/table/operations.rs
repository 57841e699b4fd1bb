//! The table of operations: one row for each operation of a channel, with the highest step that the operation has reached.
//!
//! # Invariants
//!
//! * **The order does not matter.** A row is the maximum of its operation's events. Merging the same events again, or in another
//!   order, gives the same row. So a late delivery, a replay or a repeated batch never moves an operation down.
//! * **Nothing is guessed.** The facts of the record decide the status, as for filters: signed content that contradicts the
//!   status removes it, and an event without a status is not merged.
//! * **No I/O.**

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Cell, CellKind, Row, joined, quoted, text, time};
use proof::event::Object;
use record::{Field, Record};

#[cfg(test)]
mod tests;

/// The names under which a transaction of the payload may have its hash.
const HASH_NAMES: [&str; 3] = ["hash", "tx_hash", "transaction_hash"];

/// The step of a status. A higher step is never replaced by a lower one.
///
/// A block that was only observed as `confirmed_latest` or `confirmed_safe` can still be replaced, so a failure outranks these
/// steps. Only `confirmed` is final. An unknown status is below all known ones.
fn step(status: &str) -> i64 {
    match status {
        "pending_signature" => 1,
        "accepted" => 2,
        "sending" => 3,
        "sent" => 4,
        "broadcasting" => 5,
        "confirmed_latest" => 6,
        "confirmed_safe" => 7,
        "failed" | "reverted" | "cancelled" | "expired" => 8,
        "confirmed" => 9,
        _ => 0,
    }
}

/// The rank of an event among the events of its operation. Of two events at the same step, the event with the higher offset has
/// the higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    step: i64,
    offset: i64,
}

/// The event that determines the status of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StatusEvent {
    rank: Rank,
    channel: Box<str>,
    wallet_operation_id: Cell,
    status: Cell,
    status_reason: Cell,
    verification: Cell,
    time: Option<Timestamp>,
    delivered: Timestamp,
}

/// The state of an operation according to one or several events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    channel: Uuid,
    id: Box<str>,
    latest: StatusEvent,
    /// The transaction hash of the highest event that has one.
    transaction: Option<(Rank, Box<str>)>,
    first_seen: Option<Timestamp>,
}

impl Operation {
    /// The state of an operation according to an event that is written at `delivered`. `None` if the event is about no operation.
    pub(super) fn of(record: &Record, delivered: Timestamp) -> Option<Self> {
        let facts = record.facts();
        let fact = |field| text(facts.get(field));
        if facts.get(Field::Type) != Some("operation.status") {
            return None;
        }
        let (id, status) = (facts.get(Field::OperationId)?, facts.get(Field::Status)?);
        // The text of a UUID has several forms. The table contains one.
        let id = Uuid::try_parse(id).ok()?;
        let rank = Rank { step: step(status), offset: record.offset.get() };
        let latest = StatusEvent {
            rank,
            channel: record.channel.name.as_ref().into(),
            wallet_operation_id: fact(Field::WalletOperationId),
            status: fact(Field::Status),
            status_reason: text(facts.status_reason()),
            verification: fact(Field::Verification),
            time: time(record),
            delivered,
        };
        let transaction = signed_hash(record).or_else(|| unsigned_hash(record)).map(|hash| (rank, hash));
        Some(Self {
            channel: record.channel.id.0,
            id: id.to_string().into(),
            first_seen: latest.time,
            latest,
            transaction,
        })
    }

    /// Merges another state of the same operation.
    fn merge(&mut self, other: &Self) {
        if other.latest.rank > self.latest.rank {
            self.latest = other.latest.clone();
        }
        let rank = |transaction: &Option<(Rank, Box<str>)>| transaction.as_ref().map(|(rank, _)| *rank);
        if rank(&other.transaction) > rank(&self.transaction) {
            self.transaction.clone_from(&other.transaction);
        }
        self.first_seen = self.first_seen.into_iter().chain(other.first_seen).min();
    }

    /// Another operation with the same values, to test whether the table refuses every operation.
    pub(super) fn probe(&self) -> Self {
        Self { id: Uuid::new_v4().to_string().into(), ..self.clone() }
    }

    /// The values, in the order of [`COLUMNS`].
    pub(crate) fn cells(&self) -> Vec<Cell> {
        COLUMNS.iter().map(|column| (column.cell)(self)).collect()
    }
}

/// The operations of rows that one statement writes: each operation once, in the order of the ids, so that two statements lock
/// the same rows in the same order.
pub(crate) fn merged(rows: &[Row]) -> Vec<Operation> {
    let mut merged = BTreeMap::<_, Operation>::new();
    for operation in rows.iter().filter_map(|row| row.operation.as_deref()) {
        let known = merged.entry((operation.channel, &operation.id));
        known.and_modify(|known| known.merge(operation)).or_insert_with(|| operation.clone());
    }
    merged.into_values().collect()
}

/// The hash of the transaction that the network observed.
fn signed_hash(record: &Record) -> Option<Box<str>> {
    let decoded = Object::read(record.decoded()?).ok()?;
    let chain_event: Object<'_> = decoded.get("chain_event").ok()??;
    hash_of(&chain_event, "tx_hash")
}

/// The hash in the payload, which is not signed: the hash of the last transaction that has one.
fn unsigned_hash(record: &Record) -> Option<Box<str>> {
    let event = record.event();
    let payload: Object<'_> = Object::read(&event).ok()?.get("payload").ok()??;
    let transactions: Vec<&RawValue> = payload.get("transactions").ok()??;
    transactions.iter().rev().find_map(|transaction| {
        let transaction = Object::read(transaction.get().as_bytes()).ok()?;
        HASH_NAMES.iter().find_map(|name| hash_of(&transaction, name))
    })
}

fn hash_of(object: &Object<'_>, name: &'static str) -> Option<Box<str>> {
    let hash = object.text(name).ok()??;
    (!hash.is_empty()).then(|| hash.replace('\0', "\\u0000").into())
}

/// Decides which value is kept if two rows of the same operation are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Merge {
    /// The value identifies the operation.
    Key,
    /// The value of the event with the higher rank.
    Status,
    /// The value of the event with the higher rank, among the events with a transaction hash.
    Transaction,
    /// The earlier time.
    Earliest,
}

impl Merge {
    /// The condition under which the values of the new row (`excluded`) replace the values of the existing row (`o`).
    fn condition(self) -> Option<&'static str> {
        Some(match self {
            Self::Key => return None,
            Self::Status => "(excluded.step, excluded.event_offset) > (o.step, o.event_offset)",
            Self::Transaction => {
                "excluded.transaction_step is not null and (o.transaction_step is null or \
                 (excluded.transaction_step, excluded.transaction_offset) > (o.transaction_step, o.transaction_offset))"
            }
            Self::Earliest => {
                "excluded.first_seen is not null and (o.first_seen is null or excluded.first_seen < o.first_seen)"
            }
        })
    }
}

pub(crate) struct OperationColumn {
    pub(crate) name: &'static str,
    pub(crate) kind: CellKind,
    is_needed: bool,
    merge: Merge,
    pub(crate) cell: fn(&Operation) -> Cell,
}

const fn needed(name: &'static str, kind: CellKind, merge: Merge, cell: fn(&Operation) -> Cell) -> OperationColumn {
    OperationColumn { name, kind, is_needed: true, merge, cell }
}

const fn optional(name: &'static str, kind: CellKind, merge: Merge, cell: fn(&Operation) -> Cell) -> OperationColumn {
    OperationColumn { name, kind, is_needed: false, merge, cell }
}

pub(crate) const COLUMNS: &[OperationColumn] = &[
    needed("channel_id", CellKind::Id, Merge::Key, |of| Cell::Id(of.channel)),
    needed("operation_id", CellKind::Text, Merge::Key, |of| Cell::Text(of.id.clone())),
    needed("channel", CellKind::Text, Merge::Status, |of| Cell::Text(of.latest.channel.clone())),
    optional("wallet_operation_id", CellKind::Text, Merge::Status, |of| of.latest.wallet_operation_id.clone()),
    needed("step", CellKind::Number, Merge::Status, |of| Cell::Number(of.latest.rank.step)),
    needed("status", CellKind::Text, Merge::Status, |of| of.latest.status.clone()),
    optional("status_reason", CellKind::Text, Merge::Status, |of| of.latest.status_reason.clone()),
    needed("verification", CellKind::Text, Merge::Status, |of| of.latest.verification.clone()),
    needed("event_offset", CellKind::Number, Merge::Status, |of| Cell::Number(of.latest.rank.offset)),
    optional("transaction_hash", CellKind::Text, Merge::Transaction, |of| {
        of.transaction.as_ref().map_or(Cell::Null, |(_, hash)| Cell::Text(hash.clone()))
    }),
    optional("transaction_step", CellKind::Number, Merge::Transaction, |of| {
        of.transaction.as_ref().map_or(Cell::Null, |(rank, _)| Cell::Number(rank.step))
    }),
    optional("transaction_offset", CellKind::Number, Merge::Transaction, |of| {
        of.transaction.as_ref().map_or(Cell::Null, |(rank, _)| Cell::Number(rank.offset))
    }),
    optional("first_seen", CellKind::Time, Merge::Earliest, |of| of.first_seen.map_or(Cell::Null, Cell::Time)),
    optional("last_changed", CellKind::Time, Merge::Status, |of| of.latest.time.map_or(Cell::Null, Cell::Time)),
    needed("delivered", CellKind::Time, Merge::Status, |of| Cell::Time(of.latest.delivered)),
];

/// The name of the table.
pub(crate) fn table(events: &str) -> String {
    format!("{events}_operations")
}

/// The quoted names of the columns, separated by commas.
pub(crate) fn names() -> String {
    joined(COLUMNS.iter().map(|column| quoted(column.name)), ", ")
}

/// The definitions of the columns and of the key, for `create table`.
pub(crate) fn definitions(kind: fn(CellKind) -> &'static str) -> String {
    let column = |column: &OperationColumn| {
        let is_needed = if column.is_needed { " not null" } else { "" };
        format!("{} {}{is_needed}", quoted(column.name), kind(column.kind))
    };
    format!("{}, primary key (channel_id, operation_id)", joined(COLUMNS.iter().map(column), ", "))
}

/// The name of a column that a table with the columns `found` does not have. The table then belongs to another program.
pub(crate) fn lacking(found: &[String]) -> Option<&'static str> {
    COLUMNS.iter().map(|column| column.name).find(|name| !found.iter().any(|found| found == name))
}

/// The statement that merges rows into the table. `source` is the SQL that returns the rows.
pub(crate) fn upsert(table: &str, source: &str) -> String {
    let replaced = COLUMNS.iter().filter_map(|column| {
        let (name, condition) = (quoted(column.name), column.merge.condition()?);
        Some(format!("{name} = case when {condition} then excluded.{name} else o.{name} end"))
    });
    let is_news = [Merge::Status, Merge::Transaction, Merge::Earliest].into_iter().filter_map(Merge::condition);
    format!(
        "insert into {table} as o ({}) {source} on conflict (channel_id, operation_id) do update set {} where {}",
        names(),
        joined(replaced, ", "),
        joined(is_news.map(|condition| format!("({condition})")), " or ")
    )
}
