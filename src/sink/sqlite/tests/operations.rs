//! The table of operations.

use super::*;
use crate::tests::{orders, record_of_operation};

fn place() -> Fixture {
    let mut place = Fixture::new();
    place.settings.operations = true;
    place
}

/// The values of each operation, separated by spaces, in the order of the ids. The ids are without zeros at the beginning.
fn operations(place: &Fixture) -> Vec<String> {
    let reader = place.reader();
    let mut query = reader
        .prepare("select concat_ws(' ', ltrim(operation_id, '0-'), status, step, event_offset, ifnull(transaction_hash, '-')) from order_operations order by operation_id")
        .unwrap();
    query.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// Each row of the table as text, with all values.
fn rows(place: &Fixture) -> Vec<String> {
    let reader = place.reader();
    let mut query = reader.prepare("select * from order_operations order by operation_id").unwrap();
    let count = query.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        (0..count).map(|at| row.get::<_, rusqlite::types::Value>(at)).collect::<Result<Vec<_>, _>>()
    };
    query.query_map([], row).unwrap().map(|row| format!("{:?}", row.unwrap())).collect()
}

#[tokio::test]
async fn the_table_has_the_highest_step_in_any_order_of_events_and_repeats_change_nothing() {
    let place = place();
    let sink = place.sink();
    let statuses = [("accepted", ""), ("sent", "0xa"), ("sent", "0xb"), ("reverted", ""), ("confirmed_safe", "")];
    let events: Vec<_> = statuses.iter().zip(1..).collect();
    let (mut messages, mut expected) = (Vec::new(), Vec::new());
    for (number, order) in (1..).zip(orders(&events)) {
        let id = format!("{number:x}");
        expected.push(format!("{id} reverted 8 4 0xb"));
        for ((status, transaction), offset) in &order {
            let hash = format!(r#","transactions":[{{"hash":"{transaction}"}}]"#);
            let members = if transaction.is_empty() { "" } else { &*hash };
            messages.push(record_of_operation(*offset, &id, status, members));
        }
    }
    deliver(&sink, &channel(1), &messages).await.unwrap();
    assert_eq!(operations(&place), expected);
    let before = rows(&place);
    messages.reverse();
    for part in messages.chunks(100) {
        deliver(&sink, &channel(1), part).await.unwrap();
    }
    assert_eq!(rows(&place), before);
    place.assert_sound();
}

#[tokio::test]
async fn an_operation_is_written_with_its_event_or_not_at_all() {
    let place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record_of_operation(1, "a", "sent", "")]).await.unwrap();
    let refuses = "create trigger refuses before insert on \"order\" when new.event_offset = 3 \
                   begin select raise(abort, 'no'); end";
    place.reader().execute_batch(refuses).unwrap();
    let messages = [2, 3, 4].map(|number| record_of_operation(number, "a", "sent", ""));
    let refused = deliver(&sink, &channel(1), &messages).await.unwrap_err();
    assert!(refused.delivered == 1 && refused.error.fault() == Fault::Event, "{refused:?}");
    assert_eq!((place.offsets(), operations(&place)), (vec![1, 2], vec!["a sent 4 2 -".to_owned()]));
}

#[tokio::test]
async fn a_table_of_operations_that_refuses_everything_is_not_the_fault_of_an_event() {
    let place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    let refuses = |condition: &str| {
        let trigger = "create trigger refuses before insert on order_operations when";
        place.reader().execute_batch(&format!("{trigger} {condition} begin select raise(abort, 'no'); end")).unwrap();
    };
    // The table accepts the events without an operation. This does not show whether the table or the refused event is the cause.
    let messages =
        [record_of_operation(2, "a", "sent", ""), record(&channel(1), 3), record_of_operation(4, "b", "sent", "")];
    refuses("true");
    let refused = deliver(&sink, &channel(1), &messages).await.unwrap_err();
    assert!(refused.delivered == 0 && refused.error.fault() == Fault::Operator, "{refused:?}");
    place.reader().execute_batch("drop trigger refuses").unwrap();
    refuses("new.operation_id like '%a'");
    let refused = deliver(&sink, &channel(1), &messages).await.unwrap_err();
    assert!(refused.delivered == 0 && refused.error.fault() == Fault::Event, "{refused:?}");
    assert_eq!((place.offsets(), operations(&place).len()), (vec![1], 0));
}

#[tokio::test]
async fn the_table_is_created_later_and_a_foreign_one_is_refused() {
    let mut place = Fixture::new();
    let sent = record_of_operation(1, "a", "sent", "");
    deliver(&place.sink(), &channel(1), std::slice::from_ref(&sent)).await.unwrap();
    place.settings.operations = true;
    let said = place.sink().probe().await.unwrap();
    assert!(said.contains("with table order; table order_operations will be created"), "{said}");
    place.reader().execute_batch("create table order_operations (operation_id text)").unwrap();
    let words = "table order_operations of";
    for said in [
        place.sink().probe().await.unwrap_err().to_string(),
        deliver_after(&place.sink(), &channel(1), Some(offset(1)), std::slice::from_ref(&sent))
            .await
            .unwrap_err()
            .error
            .to_string(),
    ] {
        assert!(said.contains(words) && said.contains("has no column channel_id"), "{said}");
    }
    place.reader().execute_batch("drop table order_operations").unwrap();
    // A replay of an event that has a row adds its operation.
    let sink = place.sink();
    deliver(&sink, &channel(1), &[sent]).await.unwrap();
    assert_eq!((place.offsets(), operations(&place)), (vec![1], vec!["a sent 4 1 -".to_owned()]));
    let said = sink.probe().await.unwrap();
    assert!(said.contains("table order_operations exists"), "{said}");
}

#[tokio::test]
async fn retention_deletes_the_operations_that_changed_before_the_oldest_remaining_row() {
    let mut place = place();
    place.settings.keep_for = Some(Duration::from_secs(60 * 60));
    let messages = [(1, "a"), (2, "b"), (3, "b")].map(|(number, id)| record_of_operation(number, id, "sent", ""));
    deliver(&place.sink(), &channel(1), &messages).await.unwrap();
    let aged = "update \"order\" set delivered = '2020-01-01T00:00:0' || event_offset || '.000Z' where event_offset < 3; \
                update order_operations set delivered = '2020-01-01T00:00:01.000Z' where operation_id like '%a'";
    place.reader().execute_batch(aged).unwrap();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 4)]).await.unwrap();
    until_at_most(&place, 2).await;
    assert_eq!((place.offsets(), operations(&place)), (vec![3, 4], vec!["b sent 4 3 -".to_owned()]));
}

#[tokio::test]
async fn retention_keeps_the_status_of_an_operation_while_one_of_its_rows_remains() {
    let mut place = place();
    place.settings.keep_for = Some(Duration::from_secs(60 * 60));
    let [gone, kept] = ["1", "2"];
    // The lower step arrives late, so it is written after the status.
    let late = record_of_operation(3, kept, "sent", "");
    let messages =
        [record_of_operation(1, gone, "sent", ""), record_of_operation(2, kept, "reverted", ""), late.clone()];
    deliver(&place.sink(), &channel(1), &messages).await.unwrap();
    let aged = "update \"order\" set delivered = '2020-01-01T00:00:0' || event_offset || '.000Z' where event_offset < 3; \
                update order_operations set delivered = '2020-01-01T00:00:01.000Z'";
    place.reader().execute_batch(aged).unwrap();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 4)]).await.unwrap();
    until_at_most(&place, 2).await;
    deliver(&sink, &channel(1), &[late]).await.unwrap();
    assert_eq!((place.offsets(), operations(&place)), (vec![3, 4], vec!["2 reverted 8 2 -".to_owned()]));
}
