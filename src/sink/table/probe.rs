//! Rows that are offered to a table in place of a refused row, to find out whether the table refuses every row. They are
//! written in transactions that are rolled back.
//!
//! A probe has the channel and the times of the refused row, because these select a partition and a policy. It has another
//! offset and another id, because a constraint may name those of the refused row. Its other values are made up
//! ([`made_up`]), or they are copied from a row of the channel that the table has accepted earlier ([`copied_columns`]).
//! A table may accept only one of the two: a foreign key refuses made-up values, and a unique index refuses copied values.

use std::iter;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use super::{COLUMNS, Cell, CellKind, Row, quoted};
use crate::narrowing::others;
use proof::verify::Hash;

/// A made-up text.
const TEXT: &str = "channeld.test";

/// A made-up record.
const JSON: &str = r#"{"type":"channeld.test","test":true}"#;

/// The columns of a copied row that do not have the values of the existing row, in the order of the parameters.
const CHANGED: [&str; 5] = ["event_offset", "event_id", "time", "received", "delivered"];

/// A row with made-up values. Every column has a value. If the refused row concerns an operation, this row concerns another one.
fn made_up(refused: &Row) -> Row {
    let cells =
        COLUMNS.iter().zip(&refused.cells).map(|(column, cell)| probe(column.name, column.kind, cell)).collect();
    Row { cells, operation: refused.operation.as_ref().map(|operation| Box::new(operation.probe())) }
}

/// The rows that are offered in place of the refused row at `at`: a made-up row, and some of the rows after it. If the refused
/// row concerns an operation, the table of operations may have refused it, and a row without an operation does not test that
/// table.
pub(crate) fn other_rows(rows: &[Row], at: usize) -> impl Iterator<Item = Row> {
    let refused = &rows[at];
    let others = others(at + 1..rows.len()).map(|other| &rows[other]);
    let others = others.filter(|other| refused.operation.is_none() || other.operation.is_some());
    iter::once(made_up(refused)).chain(others.cloned())
}

/// The values with which a copied row differs from the existing row, in the order of the parameters.
pub(crate) fn changed(refused: &Row) -> Vec<Cell> {
    let cell = |name: &&str| {
        let (column, cell) = COLUMNS.iter().zip(&refused.cells).find(|(column, _)| column.name == *name)?;
        Some(probe(column.name, column.kind, cell))
    };
    CHANGED.iter().filter_map(cell).collect()
}

/// The values of a copied row, for a statement that selects the existing row. `parameter` names the parameter with this
/// index.
pub(crate) fn copied_columns(parameter: impl Fn(usize) -> String) -> String {
    let value = |name: &str| match CHANGED.iter().position(|changed| *changed == name) {
        Some(at) => parameter(at),
        None => quoted(name),
    };
    super::joined(COLUMNS.iter().map(|column| value(column.name)), ", ")
}

fn probe(name: &str, kind: CellKind, refused: &Cell) -> Cell {
    match (name, kind, refused) {
        ("event_offset", _, Cell::Number(offset)) => Cell::Number(offset.saturating_add(1)),
        ("channel_id" | "channel" | "verification", _, cell) | (_, CellKind::Number, cell) => cell.clone(),
        ("record", ..) | (_, CellKind::Json, _) => Cell::Json(Bytes::from_static(JSON.as_bytes())),
        (_, CellKind::Time, Cell::Time(time)) => Cell::Time(*time),
        (_, CellKind::Time, _) => Cell::Time(Timestamp::now()),
        (_, CellKind::Id, _) => Cell::Id(Uuid::new_v4()),
        (_, CellKind::Hash, _) => Cell::Hash(Hash([0; 32])),
        (_, CellKind::Text, _) => Cell::Text(TEXT.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{channel, record};

    #[test]
    fn a_probe_has_the_channel_of_the_refused_row_another_identity_and_a_value_in_every_column() {
        let refused = Row::of(&record(&channel(1), 7), Timestamp::now(), true);
        let probe = made_up(&refused);
        assert!(!probe.cells.contains(&Cell::Null), "{probe:?}");
        for ((column, one), other) in COLUMNS.iter().zip(&refused.cells).zip(&probe.cells) {
            let is_kept = ["channel_id", "channel", "verification", "delivered"].contains(&column.name);
            assert_eq!(one == other, is_kept, "{}", column.name);
        }
        assert_eq!(probe.cells[1], Cell::Number(8));
        let changed = changed(&refused);
        assert_eq!((changed.len(), &changed[0]), (CHANGED.len(), &Cell::Number(8)));
        let columns = copied_columns(|at| format!("${at}"));
        assert!(columns.starts_with(r#""channel_id", $0, "channel", $1, "type""#), "{columns}");
    }
}
