use std::sync::Arc;

use uuid::Uuid;

use super::*;
use crate::tests::record_without_id;
use proof::event::EventId;
use record::Shape;

/// Another event at the same offset.
fn other(message: &Message) -> Message {
    let mut record = message.record().clone();
    record.event_id = Some(EventId(Uuid::from_u128(99)));
    Message::new(&Arc::new(record), &Shape::default())
}

/// Three events at one offset, one of them without an id.
fn three_at(number: i64) -> [Message; 3] {
    let first = record(&channel(1), number);
    [record_without_id(&channel(1), number), other(&first), first]
}

/// Gives the table the key of older versions.
fn restore_old_key(place: &Fixture) {
    let database = place.reader();
    let sql = "select sql from sqlite_schema where name = 'order'";
    let made: String = database.query_row(sql, [], |row| row.get(0)).unwrap();
    let columns = made.strip_suffix("\n)").unwrap().replacen("\"order\"", "older", 1);
    database
        .execute_batch(&format!(
            "{columns},\n    unique (channel_id, event_offset)\n); insert into older select * from \"order\"; \
             drop table \"order\"; alter table older rename to \"order\"; create index order_time on \"order\" (time); \
             alter table \"order\" add column mine integer default 5; create index mine on \"order\" (mine, status); \
             create trigger mine after insert on \"order\" begin select 1; end;"
        ))
        .unwrap();
    assert_eq!(place.numbers("select count(*) from pragma_index_list('order') where origin = 'u'"), [1]);
}

#[tokio::test]
async fn two_events_at_one_offset_are_each_stored_once() {
    let place = Fixture::new();
    let sink = place.sink();
    for _ in 0..2 {
        deliver(&sink, &channel(1), &three_at(5)).await.unwrap();
    }
    assert_eq!(place.offsets(), [5, 5, 5]);
    assert_eq!(place.numbers("select count(*) from \"order\" where event_id is null"), [1]);
    let [without_id, other, first] = three_at(5).map(|message| key(&message));
    let absent = EventKey { id: Some(EventId(Uuid::from_u128(3))), ..first };
    let pending = BTreeSet::from([without_id, other, absent]);
    let held = sink.resume(&Recorded { pending, ..recorded(1, 5) }).await.unwrap().held;
    assert_eq!(held, [without_id, other]);
}

#[tokio::test]
async fn an_operators_own_constraint_still_refuses() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    place.reader().execute_batch("create unique index mine on \"order\" (type)").unwrap();
    let refused = deliver(&sink, &channel(1), &[record(&channel(1), 2)]).await.unwrap_err();
    assert!(matches!(refused.error, SinkError::Refused { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_table_of_an_older_version_is_migrated_in_place() {
    let mut place = Fixture::new();
    place.settings.search = Search::Words;
    let [without_id, other, first] = three_at(2);
    deliver(&place.sink(), &channel(1), &[record(&channel(1), 1), without_id, record(&channel(1), 3)]).await.unwrap();
    restore_old_key(&place);
    let before = place.numbers("select id from \"order\" order by id");
    let sink = place.sink();
    assert!(sink.probe().await.unwrap().contains("its key will be replaced"));
    deliver(&sink, &channel(1), &[first, other]).await.unwrap();
    assert_eq!(place.offsets(), [1, 2, 3, 2, 2]);
    assert_eq!(place.numbers("select id from \"order\" order by id limit 3"), before);
    assert_eq!(place.numbers("select count(*) from order_search where text match 'wallet'"), [5]);
    assert_eq!(place.numbers("select mine from \"order\" order by id"), [5; 5]);
    assert_eq!(place.numbers("select count(*) from sqlite_schema where name = 'mine'"), [2]);
    assert_eq!(
        place.numbers("select count(*) from pragma_index_list('order') where \"unique\""),
        [2],
        "the second index is for positions"
    );
    assert_eq!(place.numbers("select position from \"order\" order by id"), [1, 2, 3, 4, 5]);
    place.assert_sound();
    drop(sink);
    assert!(place.sink().probe().await.unwrap().contains("with table order"));
    place.assert_sound();
}

#[tokio::test]
async fn an_old_index_is_dropped_and_a_foreign_definition_refused() {
    let place = Fixture::new();
    deliver(&place.sink(), &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    place.reader().execute_batch("create unique index old on \"order\" (channel_id, event_offset)").unwrap();
    let sink = place.sink();
    deliver(&sink, &channel(1), &three_at(1)).await.unwrap();
    assert_eq!(place.offsets(), [1, 1, 1]);
    drop(sink);

    let place = Fixture::new();
    deliver(&place.sink(), &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    restore_old_key(&place);
    place
        .reader()
        .execute_batch(
            "pragma writable_schema = on; \
             update sqlite_schema set sql = replace(sql, 'unique (', 'UNIQUE(') where name = 'order'",
        )
        .unwrap();
    let refused = place.sink().resume(&recorded(1, 1)).await.unwrap_err();
    assert!(refused.to_string().contains("of two events at one offset the second would be lost"), "{refused}");
    place.assert_sound();
}
