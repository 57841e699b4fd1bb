//! Rows as the parameters of a statement: one array for each column.

use std::error::Error;

use bytes::BytesMut;
use jiff::Timestamp;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::table::operations::{self, OperationColumn};
use crate::table::{COLUMNS, Cell, CellKind, Row};
use record::Message;

pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The parameters of a statement: each value with the name of its type.
macro_rules! parameters {
    ($($value:expr => $kind:ident),*) => {
        [$((&$value as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::$kind)),*]
    };
}
pub(super) use parameters;

/// The epoch of PostgreSQL's times: 2000-01-01, in Unix microseconds.
const EPOCH: i64 = 946_684_800_000_000;

/// The maximum numbers of digits that `numeric` allows before and after the decimal point.
const DIGITS: (i64, i64) = (131_072, 16_383);

/// A row, without JSON that `jsonb` refuses.
pub(super) fn row(message: &Message, delivered: Timestamp, has_operations: bool) -> Row {
    let mut row = Row::of(message, delivered, has_operations);
    for (_, cell) in json(&mut row) {
        if matches!(cell, Cell::Json(text) if jsonb_refuses(text)) {
            *cell = Cell::Null;
        }
    }
    row
}

/// Removes the JSON from a row, because the server refused JSON that [`row`] had not removed. Returns whether the row had
/// JSON.
pub(super) fn forgo_json(row: &mut Row) -> bool {
    json(row).fold(false, |found, (_, cell)| std::mem::replace(cell, Cell::Null) != Cell::Null || found)
}

fn json(row: &mut Row) -> impl Iterator<Item = (&'static crate::table::Column, &mut Cell)> {
    COLUMNS.iter().zip(&mut row.cells).filter(|(column, _)| column.kind == CellKind::Json)
}

/// The approximate size of a row in bytes.
pub(super) fn bytes(row: &Row) -> usize {
    let operation = row.operation.as_ref().map(|operation| operation.cells()).unwrap_or_default();
    row.cells.iter().chain(&operation).map(Cell::bytes).sum()
}

pub(super) fn columns<'r>(rows: &[&'r Row]) -> Vec<(Vec<&'r Cell>, Type)> {
    let column = |(at, column): (usize, &crate::table::Column)| {
        (rows.iter().map(|row| &row.cells[at]).collect(), array_of(column.kind))
    };
    COLUMNS.iter().enumerate().map(column).collect()
}

/// The columns of the operations that these rows concern.
pub(super) fn operation_columns(rows: &[Row]) -> Vec<(Vec<Cell>, Type)> {
    let operations = operations::merged(rows);
    let column = |column: &OperationColumn| {
        (operations.iter().map(|operation| (column.cell)(operation)).collect(), array_of(column.kind))
    };
    operations::COLUMNS.iter().map(column).collect()
}

fn array_of(kind: CellKind) -> Type {
    match kind {
        CellKind::Id => Type::UUID_ARRAY,
        CellKind::Number => Type::INT8_ARRAY,
        // The statement parses the JSON.
        CellKind::Text | CellKind::Json => Type::TEXT_ARRAY,
        CellKind::Time => Type::TIMESTAMPTZ_ARRAY,
        CellKind::Hash => Type::BYTEA_ARRAY,
    }
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

/// Whether the type `jsonb` refuses this text, although it is valid JSON. `jsonb` refuses a NUL, half a surrogate pair, and
/// a number that `numeric` cannot represent.
pub(super) fn jsonb_refuses(json: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += match byte {
            b'"' => match text(&json[at..]) {
                Some(length) => length,
                None => return true,
            },
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                let length = json[at..].iter().position(|byte| !is_part(byte)).unwrap_or(json.len() - at);
                if !is_numeric(&json[at..at + length]) {
                    return true;
                }
                length
            }
            _ => 1,
        };
    }
    false
}

/// The length of the JSON string that begins here. `None` if it contains an escape that `jsonb` refuses.
fn text(json: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match unit(&json[at..]) {
                Some(0 | 0xDC00..=0xDFFF) => return None,
                Some(0xD800..=0xDBFF) => match unit(json.get(at + 6..)?) {
                    Some(0xDC00..=0xDFFF) => at += 12,
                    _ => return None,
                },
                Some(_) => at += 6,
                None => at += 2,
            },
            _ => at += 1,
        }
    }
}

/// The UTF-16 unit of the escape `\uXXXX` with which the text begins.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Whether `numeric` can represent a number.
fn is_numeric(number: &[u8]) -> bool {
    let Ok(number) = std::str::from_utf8(number) else { return false };
    if number.len() <= 20 && !number.contains(['e', 'E']) {
        return true;
    }
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let Ok(exponent) = exponent.trim_start_matches('+').parse::<i32>().map(i64::from) else { return false };
    let (whole, fraction) = mantissa.trim_start_matches('-').split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX / 2);
    digits(whole) + exponent <= DIGITS.0 && digits(fraction) - exponent <= DIGITS.1
}
