//! The statement that writes rows of one lane and moves the lane's position.

use std::ops::Range;

use serde_json::json;
use tokio_postgres::Error;
use tokio_postgres::types::Type;

use super::cells::{self, Parameter};
use super::pool::{Borrowed, Pool};
use crate::Delivery;
use crate::table::Row;
use net::postgres::bigint;
use proof::event::Offset;

/// If the rows for one statement have more bytes than this, several statements write them.
pub(super) const AT_ONCE_BYTES: usize = 8 << 20;

/// The condition of a statement, and its effects other than writing rows.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// The statement writes only if the lane has this position.
    pub(super) after: Option<Offset>,
    /// The position becomes the higher one of `after` and `through`.
    pub(super) through: Offset,
    /// Whether the answer waits until the rows are on the server's disk.
    pub(super) waits: bool,
}

/// The answer to a statement: whether the lane belongs to this instance and had the expected position, and the server process
/// that has executed the statement.
pub(super) type StatementResult = (bool, String);

impl Step {
    /// The lane's position after this step.
    pub(super) fn position(&self) -> Option<Offset> {
        self.after.max(Some(self.through))
    }
}

/// Sends a statement that writes rows of one lane and the lane's position.
pub(super) async fn insert(
    connection: &Borrowed<'_>,
    delivery: &Delivery<'_>,
    Step { after, through, waits }: Step,
    rows: &[Row],
) -> Result<StatementResult, Error> {
    let Pool { settings, statements, .. } = connection.pool;
    let (columns, Delivery { lane, epoch, .. }) = (cells::columns(rows), delivery);
    let (channel, sink) = (lane.channel.id.0, &*lane.sink);
    let (through, epoch, after) = (through.get(), bigint(*epoch), after.map(Offset::get));
    let note = json!({"channel": &*lane.channel.name, "sink": sink, "through": through}).to_string();
    let mut parameters: Vec<Parameter<'_>> = vec![
        (&channel as _, Type::UUID),
        (&sink as _, Type::TEXT),
        (&through as _, Type::INT8),
        (&epoch as _, Type::INT8),
        (&after as _, Type::INT8),
        (&waits as _, Type::BOOL),
    ];
    parameters.extend(columns.iter().map(|(column, kind)| (column as _, kind.clone())));
    let operations = if settings.operations { cells::operation_columns(rows) } else { Vec::new() };
    parameters.extend(operations.iter().map(|(column, kind)| (column as _, kind.clone())));
    if let Some(notified) = &settings.notify {
        parameters.extend([(notified as _, Type::TEXT), (&note as _, Type::TEXT)] as [Parameter<'_>; 2]);
    }
    let answer = connection.send(&statements.insert, &parameters).await?;
    let row = answer.first().expect("a query without a table gives one row");
    Ok((row.get::<_, i64>(0) > 0, row.get(1)))
}

/// Splits rows into ranges for one statement each. The last range comes first.
pub(super) fn pieces(rows: &[Row]) -> Vec<Range<usize>> {
    let (mut pieces, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let more = cells::bytes(row);
        if at > start && bytes + more > AT_ONCE_BYTES {
            pieces.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += more;
    }
    pieces.push(start..rows.len());
    pieces.reverse();
    pieces
}
