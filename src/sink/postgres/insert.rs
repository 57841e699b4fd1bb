//! The statement that writes rows of one lane and moves the lane's position, and the statement that gives positions to older rows.

use std::ops::Range;

use serde_json::json;
use tokio_postgres::Error;
use tracing::{info, warn};

use super::cells::{self, parameters};
use super::pool::{Borrowed, Pool};
use crate::table::{Row, distinct};
use crate::{Delivery, SinkError};
use net::postgres::bigint;
use proof::event::{ChannelId, Offset};

/// If the rows for one statement have more bytes than this, several statements write them.
pub(super) const AT_ONCE_BYTES: usize = 8 << 20;

/// How often a statement is sent again because another lane has written rows of the same channel in between.
pub(super) const ATTEMPTS: usize = 100;

/// How many rows one statement may give a position, as a multiple of the rows that one statement may write now. A position is much less
/// work than a row.
const NUMBERED_AT_ONCE: usize = 40;

/// The condition of a statement, and its effects other than writing rows.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// The statement writes only if the lane has this position.
    pub(super) after: Option<Offset>,
    /// The position becomes the higher one of `after` and `through`.
    pub(super) through: Offset,
    /// Whether the answer waits until the rows are on the server's disk.
    pub(super) waits: bool,
    /// Whether the statement writes only if every row of the channel has a position.
    pub(super) is_numbered: bool,
}

/// The answer to a statement.
#[derive(Debug)]
pub(super) struct StatementResult {
    pub(super) outcome: Outcome,
    /// The server process that has executed the statement.
    pub(super) backend: String,
    /// How many cursors of consumers the statement has moved back.
    pub(super) moved_back: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The rows and the position were written.
    Written,
    /// The lane does not belong to this instance, or had another position. Nothing was written.
    Unmoved,
    /// The statement was unable to assign positions, because another lane has just written rows of this channel, or because there are
    /// rows without a position. Nothing was written.
    Unnumbered,
}

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
    Step { after, through, waits, is_numbered }: Step,
    rows: &[Row],
) -> Result<StatementResult, Error> {
    let Pool { settings, statements, .. } = connection.pool;
    let (columns, Delivery { lane, epoch, .. }) = (cells::columns(&distinct(rows)), delivery);
    let (sink, through, epoch, after) = (&*lane.sink, through.get(), bigint(*epoch), after.map(Offset::get));
    let note = json!({"channel": &*lane.channel.name, "sink": sink, "through": through}).to_string();
    let mut parameters = Vec::from(parameters![
        lane.channel.id.0 => UUID, sink => TEXT, through => INT8, epoch => INT8, after => INT8,
        waits => BOOL, is_numbered => BOOL
    ]);
    parameters.extend(columns.iter().map(|(column, kind)| (column as _, kind.clone())));
    let operations = if settings.operations { cells::operation_columns(rows) } else { Vec::new() };
    parameters.extend(operations.iter().map(|(column, kind)| (column as _, kind.clone())));
    if let Some(notified) = &settings.notify {
        parameters.extend(parameters![*notified => TEXT, note => TEXT]);
    }
    let answer = connection.send(connection.pool.form(&statements.insert), &parameters).await?;
    let row = answer.first().expect("a query without a table gives one row");
    let outcome = match (row.get::<_, i64>(0) > 0, row.get(2)) {
        (true, _) => Outcome::Written,
        (false, true) => Outcome::Unmoved,
        (false, false) => Outcome::Unnumbered,
    };
    Ok(StatementResult { outcome, backend: row.get(1), moved_back: row.get(3) })
}

/// Gives positions to rows of a channel that have none: an older version wrote them. Each statement numbers a part of them in a
/// transaction of its own. So no transaction is long, dead rows can be removed in between, and a restart continues where the
/// last statement stopped. Later events are written only after these rows have their positions.
pub(super) async fn number(connection: &Borrowed<'_>, channel: ChannelId) -> Result<(), SinkError> {
    let pool = connection.pool;
    let (mut total, mut attempts) = (0, 0);
    loop {
        let most = i64::try_from(pool.effort.rows() * NUMBERED_AT_ONCE).unwrap_or(i64::MAX);
        let parameters = parameters![channel.0 => UUID, most => INT8];
        let rows = connection.query(pool.form(&pool.statements.number), &parameters).await?;
        let row = rows.first().expect("a query without a table gives one row");
        let (numbered, is_complete): (i64, bool) = (row.get(0), row.get(1));
        warn_of_cursors(row.get(2), &pool.settings.quoted(), channel);
        total += numbered;
        if is_complete {
            if total > 0 {
                let table = pool.settings.quoted();
                info!(table, %channel, rows = total, "rows of an older version got their positions");
            }
            return Ok(());
        }
        attempts = if numbered > 0 { 0 } else { attempts + 1 };
        if attempts > ATTEMPTS {
            let what = "the positions of existing rows cannot be written: a trigger, a rule or a policy of the table prevents it";
            return Err(SinkError::unusable(what.to_owned()));
        }
    }
}

/// Reports that cursors of consumers were moved back.
pub(super) fn warn_of_cursors(consumers: i64, table: &str, channel: ChannelId) {
    if consumers > 0 {
        warn!(
            table,
            %channel,
            consumers,
            "consumers of the feed were ahead of their table, which was restored from a backup: their cursors moved back, and their leases ended"
        );
    }
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
