//! Exports a list as a file. The rows are streamed as they are read.
//!
//! # Invariants
//!
//! * **Everything, or visibly not everything.** If a row cannot be read, the last line of the file says so, and the transfer
//!   is aborted, so that the client reports an error.
//! * **One search.** The search for longer words that begin with the last word depends on the number of hits, which can change
//!   between two pages. The export then ends with an error: one of its parts would lack events.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::yield_now;

use super::query::Query;
use crate::tables::{MOST_ROWS, OnlyWhole, PagePosition, Row, Table};
use record::Confidence;

pub(super) const CSV_HEAD: &str = "verdict,type,name,source,service,network,status,time,received,delivered,channel,channel_id,offset,event_id,confidence,network_name\r\n";

/// How long a page of an export can take. It is shorter than the time after which a silent transfer is ended.
const BUDGET: Duration = Duration::from_secs(30);

/// Returns the lines of all matching rows of the table.
pub(super) fn lines(table: Arc<Table>, query: Query, is_csv: bool) -> impl Stream<Item = Result<String, String>> {
    let of_row = move |(table, row): (Arc<Table>, Row)| async move {
        if is_csv { Ok(line(&row, true)) } else { record(&table, &row).await }
    };
    rows(table, query).and_then(of_row)
}

fn rows(table: Arc<Table>, query: Query) -> impl Stream<Item = Result<(Arc<Table>, Row), String>> {
    let begin = Some((query.below.clone(), true));
    let pages = stream::try_unfold((table, query, begin, None), async |(table, query, at, mut only_whole)| {
        let Some((below, is_first)) = at else { return Ok::<_, String>(None) };
        let (rows, next) = page(&table, &query, (below.as_ref(), is_first), &mut only_whole).await?;
        let of_table: Vec<_> = rows.into_iter().map(|row| Ok((table.clone(), row))).collect();
        let next = next.map(|next| (Some(next), false));
        Ok(Some((stream::iter(of_table), (table, query, next, only_whole))))
    });
    pages.try_flatten()
}

/// The rows of a page, and the position at which the next page begins. `None` after the last row. `only_whole` is the kind of search
/// of the earlier pages.
async fn page(
    table: &Table,
    query: &Query,
    (below, is_first): (Option<&PagePosition>, bool),
    only_whole: &mut Option<OnlyWhole>,
) -> Result<(Vec<Row>, Option<PagePosition>), String> {
    let page = table.page_within(&query.filter, below, MOST_ROWS, BUDGET).await.map_err(|error| error.to_string())?;
    if page.only_whole == Some(OnlyWhole::Slow) {
        return Err("The search for longer words took too long.".to_owned());
    }
    let has_answered = !page.is_stopped || !page.rows.is_empty();
    if is_first {
        *only_whole = page.only_whole;
    } else if has_answered && *only_whole != page.only_whole {
        let why = "During the export, the number of events that contain the words passed 1,000 or fell below it. This number decides \
                   whether longer words are searched. Export again, or type * after the last word: longer words are then always searched.";
        return Err(why.to_owned());
    }
    if !page.has_more && !page.is_stopped {
        return Ok((page.rows, None));
    }
    let Some(last) = page.rows.last() else { return Err("The table did not respond in time.".to_owned()) };
    let next = PagePosition::of(last).ok_or_else(|| format!("The channel id {} is invalid.", last.channel_id))?;
    Ok((page.rows, Some(next)))
}

/// The record of a row as it was delivered, if it is JSON. Otherwise, or if the row was deleted meanwhile, its columns.
async fn record(table: &Table, row: &Row) -> Result<String, String> {
    let full_row = match PagePosition::of(row) {
        Some(position) => table.row_at(&position).await.map_err(|error| error.to_string())?,
        None => None,
    };
    let record = full_row.map(|full_row| full_row.record).unwrap_or_default();
    let is_json = record.starts_with('{') && serde_json::from_str::<&RawValue>(&record).is_ok();
    Ok(if is_json { record.replace(['\n', '\r'], " ") + "\n" } else { line(row, false) })
}

/// Turns an error into a last line and an aborted transfer.
pub(super) fn aborted(
    lines: impl Stream<Item = Result<String, String>>,
    is_csv: bool,
) -> impl Stream<Item = io::Result<String>> {
    lines.flat_map(move |line| {
        let ending = match line {
            Ok(line) => return stream::once(async { Ok(line) }).left_stream(),
            Err(why) => stream::once(async move { Ok(last_line(&why, is_csv)) }),
        };
        let abort = stream::once(async {
            // Without this pause, the connection is closed before the last line is sent.
            yield_now().await;
            Err(io::Error::other("the export is incomplete"))
        });
        ending.chain(abort).right_stream()
    })
}

/// The last line of a file that is not complete.
fn last_line(why: &str, is_csv: bool) -> String {
    let text = format!("INCOMPLETE: this export ends here, and events are missing. {why}");
    if is_csv { format!("{}\r\n", quoted(&text)) } else { format!("{}\n", json!({ "error": text })) }
}

/// Formats the columns of a list as one line of the file.
pub(super) fn line(row: &Row, is_csv: bool) -> String {
    if is_csv {
        return csv(row);
    }
    let json = json!({
        "channel": row.channel, "channel_id": row.channel_id, "offset": row.offset, "event_id": row.event_id, "type": row.kind,
        "name": row.name, "source": row.source, "service": row.service, "network": row.network,
        "confidence": row.confidence, "network_name": row.network.as_deref().and_then(::record::network_name),
        "time": row.time.map(|time| time.to_string()), "status": row.status, "verification": { "status": row.verification },
    });
    format!("{json}\n")
}

fn csv(row: &Row) -> String {
    let time = |time: Option<jiff::Timestamp>| time.map(|time| time.to_string());
    let text = |of: &Option<String>| of.clone().unwrap_or_default();
    let cells = [
        row.verification.clone(),
        row.kind.clone(),
        text(&row.name),
        text(&row.source),
        text(&row.service),
        text(&row.network),
        text(&row.status),
        time(row.time).unwrap_or_default(),
        time(row.received).unwrap_or_default(),
        time(row.delivered).unwrap_or_default(),
        row.channel.clone(),
        row.channel_id.clone(),
        row.offset.to_string(),
        text(&row.event_id),
        row.confidence.map(Confidence::name).unwrap_or_default().to_owned(),
        row.network.as_deref().and_then(::record::network_name).unwrap_or_default().to_owned(),
    ];
    let cells: Vec<_> = cells.iter().map(|cell| quoted(cell)).collect();
    format!("{}\r\n", cells.join(","))
}

/// The signs with which a formula can begin, and their full-width forms, which some spreadsheets accept too.
const FORMULA_SIGNS: [char; 8] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Characters that can end a cell: in some countries, spreadsheets separate cells at semicolons or tabs.
const SEPARATORS: [char; 6] = [',', ';', '\t', '"', '\n', '\r'];

/// Quotes a cell. A cell that a spreadsheet would read as a formula gets an apostrophe in front.
fn quoted(cell: &str) -> String {
    let is_formula = cell.trim_start().starts_with(FORMULA_SIGNS);
    let cell = if is_formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains(SEPARATORS) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests;
