//! Rows as the parameters of a statement: one array for each column.

use std::error::Error;

use bytes::BytesMut;
use jiff::Timestamp;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use super::jsonb;
use crate::table::{COLUMNS, Cell, Kind, Row};
use record::Message;

/// A value, and its type in the database.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The epoch of PostgreSQL's times: 2000-01-01, in Unix microseconds.
const EPOCH: i64 = 946_684_800_000_000;

/// A row, without JSON that `jsonb` refuses.
pub(super) fn row(message: &Message, delivered: Timestamp) -> Row {
    let mut row = Row::of(message, delivered);
    for (_, cell) in json(&mut row) {
        if matches!(cell, Cell::Json(text) if jsonb::refuses(text)) {
            *cell = Cell::Null;
        }
    }
    row
}

/// Removes the JSON from a row, for a server that refuses JSON which [`row`] has kept. Returns whether the row had JSON.
pub(super) fn forgo_json(row: &mut Row) -> bool {
    json(row).fold(false, |found, (_, cell)| std::mem::replace(cell, Cell::Null) != Cell::Null || found)
}

fn json(row: &mut Row) -> impl Iterator<Item = (&'static crate::table::Column, &mut Cell)> {
    COLUMNS.iter().zip(&mut row.0).filter(|(column, _)| column.kind == Kind::Json)
}

/// The approximate size of a row in bytes.
pub(super) fn bytes(row: &Row) -> usize {
    let bytes = |cell: &Cell| match cell {
        Cell::Text(text) => text.len(),
        Cell::Json(json) => json.len(),
        _ => 32,
    };
    row.0.iter().map(bytes).sum()
}

/// The rows as one array for each column, with its type.
pub(super) fn columns(rows: &[Row]) -> Vec<(Vec<&Cell>, Type)> {
    let column = |(at, column): (usize, &crate::table::Column)| {
        let kind = match column.kind {
            Kind::Id => Type::UUID_ARRAY,
            Kind::Number => Type::INT8_ARRAY,
            // The statement parses the JSON.
            Kind::Text | Kind::Json => Type::TEXT_ARRAY,
            Kind::Time => Type::TIMESTAMPTZ_ARRAY,
            Kind::Hash => Type::BYTEA_ARRAY,
        };
        (rows.iter().map(|row| &row.0[at]).collect(), kind)
    };
    COLUMNS.iter().enumerate().map(column).collect()
}

/// The type is not checked, because each kind of cell occurs only in columns of its type.
impl ToSql for Cell {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Number(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Json(json) => {
                out.extend_from_slice(json);
                Ok(IsNull::No)
            }
            Self::Id(id) => id.to_sql(kind, out),
            Self::Time(time) => (time.as_microsecond() - EPOCH).to_sql(&Type::INT8, out),
            Self::Hash(hash) => hash.0.as_slice().to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
