use std::collections::BTreeMap;

use super::*;
use crate::tests::{channel, record, record_about, record_of_another};

/// The non-null values of a row, by the names of their columns.
fn values(message: &Message) -> BTreeMap<&'static str, Cell> {
    let row = Row::of(message, Timestamp::UNIX_EPOCH, true);
    let cells = COLUMNS.iter().map(|column| column.name).zip(row.cells);
    cells.filter(|(_, cell)| *cell != Cell::Null).collect()
}

#[test]
fn a_row_has_exactly_the_fields_of_its_record() {
    let message = record(&channel(7), 5);
    let values = values(&message);
    let id = Uuid::from_u128((7 << 64) | 5);
    for (name, cell) in [
        ("channel_id", Cell::Id(Uuid::from_u128(7))),
        ("event_offset", Cell::Number(5)),
        ("channel", Cell::Text("channel-7".into())),
        ("event_id", Cell::Id(id)),
        ("type", Cell::Text("wallet.status".into())),
        ("verification", Cell::Text("unsigned".into())),
        ("delivered", Cell::Time(Timestamp::UNIX_EPOCH)),
        ("record", Cell::Json(message.body().clone())),
    ] {
        assert_eq!(values.get(name), Some(&cell), "{name}");
    }
    assert_eq!(values.len(), 8, "{values:?}");
}

#[test]
fn values_that_fit_no_column_are_only_in_the_record() {
    let wallet = record_about(&channel(7), 5, "no-uuid");
    assert_eq!(values(&wallet).get("wallet_id"), None);
    assert!(String::from_utf8_lossy(wallet.body()).contains("no-uuid"));
    assert_eq!(text(Some("a\0b")), Cell::Text("a\\u0000b".into()));
}

#[test]
fn column_names_are_unique_and_the_columns_of_the_key_are_first() {
    let names: std::collections::BTreeSet<_> = COLUMNS.iter().map(|column| column.name).collect();
    assert_eq!(names.len(), COLUMNS.len());
    assert_eq!([0, 1, 3].map(|at| COLUMNS[at].name), ["channel_id", "event_offset", "event_id"]);
}

#[tokio::test]
async fn rows_are_grouped_in_message_order_up_to_a_number_of_rows_or_bytes() {
    let messages: Vec<_> = (1..=5).map(|offset| record(&channel(7), offset)).collect();
    let make = |message: &Message, delivered: Timestamp| Row::of(message, delivered, true);
    let two = messages[0].body().len() + 1;
    for most in [RowLimit { rows: 2, bytes: usize::MAX }, RowLimit { rows: 9, bytes: two }] {
        let mut made = 0;
        for (place, offsets) in [(0..2, &[1, 2][..]), (2..4, &[3, 4]), (4..5, &[5])] {
            let (at, rows) = next_rows(&messages, made, most, make).await.unwrap();
            assert_eq!(at, place, "{most:?}");
            made = at.end;
            let is = |row: &Row, offset| row.cells.contains(&Cell::Number(offset));
            assert!(
                rows.iter().zip(offsets).all(|(row, offset)| is(row, *offset)) && rows.len() == offsets.len(),
                "{rows:?}"
            );
        }
        assert!(next_rows(&messages, made, most, make).await.is_none());
    }
    let (at, _) = next_rows(&messages, 0, RowLimit { rows: 9, bytes: 1 }, make).await.unwrap();
    assert_eq!(at, 0..1, "a message that exceeds the limit has a group of its own");
}

#[test]
fn a_repeated_event_has_one_row_and_other_events_at_its_offset_have_theirs() {
    let [one, other] = [record(&channel(7), 5), record_of_another(&channel(7), 5)];
    let messages = [record(&channel(7), 4), one.clone(), other.clone(), one, other, record(&channel(7), 6)];
    let rows: Vec<_> = messages.iter().map(|message| Row::of(message, Timestamp::UNIX_EPOCH, false)).collect();
    assert_eq!(distinct(&rows), [&rows[0], &rows[1], &rows[2], &rows[5]]);
}
