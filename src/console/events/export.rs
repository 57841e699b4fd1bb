//! Formats rows as lines of a file.

use serde_json::json;
use serde_json::value::RawValue;

use super::query::Query;
use crate::state::State;
use crate::tables::{MOST_ROWS, Place, Row, Source};

/// The first line of a CSV file.
pub(super) const CSV_HEAD: &str =
    "verdict,type,name,source,service,network,status,time,received,delivered,channel,channel_id,offset,event_id\r\n";

pub(super) fn kind(is_csv: bool) -> (&'static str, &'static str) {
    if is_csv {
        ("text/csv; charset=utf-8", "attachment; filename=\"events.csv\"")
    } else {
        ("application/x-ndjson", "attachment; filename=\"events.jsonl\"")
    }
}

/// The lines of a page, and the place at which the next page begins.
pub(super) async fn page(state: &State, query: &Query, below: Option<&Place>, is_csv: bool) -> (String, Option<Place>) {
    let Source::Table(table) = &state.source else { return (String::new(), None) };
    let Ok(page) = table.page(&query.filter, below, MOST_ROWS, true).await else { return (String::new(), None) };
    let mut lines = String::new();
    for row in &page.rows {
        if is_csv {
            lines.push_str(&csv(row));
            continue;
        }
        let id = row.channel_id.parse();
        let whole = match id {
            Ok(id) => table.whole(id, row.offset).await.ok().flatten(),
            Err(_) => None,
        };
        // Export the record as it was delivered, if it is JSON.
        let record = whole.map(|whole| whole.record).unwrap_or_default();
        let is_json = record.starts_with('{') && serde_json::from_str::<&RawValue>(&record).is_ok();
        let line = if is_json { record.replace(['\n', '\r'], " ") } else { plain(row) };
        lines.push_str(&line);
        lines.push('\n');
    }
    let next = page.rows.last().and_then(Place::of).filter(|_| page.has_more || page.stopped.is_some());
    (lines, next)
}

/// Formats rows as lines of a file, and returns the content type.
pub(super) fn lines(rows: &[Row], is_csv: bool) -> (String, &'static str) {
    let (kind, _) = kind(is_csv);
    let lines = rows.iter().map(|row| if is_csv { csv(row) } else { plain(row) + "\n" });
    let head = if is_csv { CSV_HEAD } else { "" };
    (std::iter::once(head.to_owned()).chain(lines).collect(), kind)
}

fn plain(row: &Row) -> String {
    json!({
        "channel": row.channel, "channel_id": row.channel_id, "offset": row.offset, "event_id": row.event_id, "type": row.kind,
        "name": row.name, "source": row.source, "service": row.service, "network": row.network,
        "time": row.time.map(|time| time.to_string()), "status": row.status, "verification": { "status": row.verification },
    })
    .to_string()
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
    ];
    let cells: Vec<_> = cells.iter().map(|cell| quoted(cell)).collect();
    format!("{}\r\n", cells.join(","))
}

/// Quotes a cell. A cell that a spreadsheet would read as a formula gets an apostrophe in front.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let cell = if is_formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_none_ends_early() {
        for (cell, expected) in
            [("plain", "plain"), ("=1+1", "'=1+1"), ("a,b", "\"a,b\""), ("a\"b", "\"a\"\"b\""), ("-1,", "\"'-1,\"")]
        {
            assert_eq!(quoted(cell), expected);
        }
    }
}
