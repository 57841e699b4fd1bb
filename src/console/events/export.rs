//! Formats rows as lines of a file.

use serde_json::json;
use serde_json::value::RawValue;

use super::query::Query;
use crate::tables::{MOST_ROWS, PagePosition, Row, Table};

pub(super) const CSV_HEAD: &str =
    "verdict,type,name,source,service,network,status,time,received,delivered,channel,channel_id,offset,event_id\r\n";

/// The lines of a page, and the position at which the next page begins.
pub(super) async fn page(
    table: &Table,
    query: &Query,
    below: Option<&PagePosition>,
    is_csv: bool,
) -> (String, Option<PagePosition>) {
    let Ok(page) = table.page(&query.filter, below, MOST_ROWS, true).await else { return (String::new(), None) };
    let mut lines = String::new();
    for row in &page.rows {
        let full_row = match row.channel_id.parse() {
            Ok(id) if !is_csv => table.full_row(id, row.offset).await.ok().flatten(),
            _ => None,
        };
        // If the record is JSON, export it as it was delivered.
        let record = full_row.map(|full_row| full_row.record).unwrap_or_default();
        let is_json = record.starts_with('{') && serde_json::from_str::<&RawValue>(&record).is_ok();
        lines += &if is_json { record.replace(['\n', '\r'], " ") + "\n" } else { line(row, is_csv) };
    }
    let next = page.rows.last().and_then(PagePosition::of).filter(|_| page.has_more || page.is_stopped);
    (lines, next)
}

/// Formats the columns of a list as one line of the file.
pub(super) fn line(row: &Row, is_csv: bool) -> String {
    if is_csv {
        return csv(row);
    }
    let json = json!({
        "channel": row.channel, "channel_id": row.channel_id, "offset": row.offset, "event_id": row.event_id, "type": row.kind,
        "name": row.name, "source": row.source, "service": row.service, "network": row.network,
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
mod tests {
    use super::*;

    #[test]
    fn csv_cells_are_escaped_and_never_formulas() {
        for (cell, expected) in [
            ("plain", "plain"),
            ("=1+1", "'=1+1"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("-1,", "\"'-1,\""),
            ("a;=1+1", "\"a;=1+1\""),
            ("a\t=1+1", "\"a\t=1+1\""),
            ("\t=1+1", "\"'\t=1+1\""),
            ("\u{ff1d}1+1", "'\u{ff1d}1+1"),
        ] {
            assert_eq!(quoted(cell), expected);
        }
    }
}
