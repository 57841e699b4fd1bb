use std::collections::BTreeSet;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::settings::Search;
use crate::tests::{channel, lane, offset, record, record_about, records};
use crate::{Confirmed, Fault};
use proof::event::{EventKey, Offset};
use record::{ChannelRef, Message};
use telemetry::metrics::Upkeep;

mod feed;
mod files;
mod key;
mod operations;
mod positions;
mod probe;

struct Fixture {
    directory: TempDir,
    settings: SqliteSettings,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events.db");
        // An SQL keyword as a table name.
        let table = "order".to_owned();
        let settings = SqliteSettings {
            path,
            table,
            operations: false,
            search: Search::None,
            keep_for: None,
            keep_for_consumers: Vec::new(),
            keep_size: None,
            feed: false,
        };
        Self { directory, settings }
    }

    fn sink(&self) -> Sqlite {
        Sqlite::new(self.settings.clone(), UpkeepFailures::default())
    }

    fn reader(&self) -> Connection {
        Connection::open(&self.settings.path).unwrap()
    }

    fn numbers(&self, query: &str) -> Vec<i64> {
        let reader = self.reader();
        let mut statement = reader.prepare(query).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn assert_sound(&self) {
        let sound: String = self.reader().query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }

    /// Waits until the log was written into the file.
    async fn until_log_is_empty(&self) {
        let log = super::files::beside(&self.settings.path, "-wal");
        for _ in 0..2_000 {
            if std::fs::metadata(&log).is_ok_and(|log| log.len() == 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the log is not empty");
    }

    fn offsets(&self) -> Vec<i64> {
        self.numbers("select event_offset from \"order\" order by id")
    }
}

fn recorded(epoch: u64, through: i64) -> Recorded {
    let (lane, through) = (lane(&channel(1)), Some(offset(through)));
    Recorded {
        lane,
        epoch,
        through,
        pending: BTreeSet::new(),
        replayed: BTreeSet::new(),
        confirmed: None,
        late: Vec::new(),
    }
}

fn key(message: &Message) -> EventKey {
    message.record().event_key()
}

/// The offsets in a database that is not open. Asserts its integrity.
fn offsets_of(path: &std::path::Path) -> Vec<i64> {
    let reader = Connection::open(path).unwrap();
    let sound: String = reader.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut statement = reader.prepare("select event_offset from \"order\" order by id").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

async fn at_epoch(sink: &Sqlite, epoch: u64, after: i64, number: i64) -> Result<(), Undelivered> {
    let (messages, lane, after) = (records(&channel(1), [number]), lane(&channel(1)), Some(offset(after)));
    sink.deliver(&Delivery { lane: &lane, epoch, after, through: offset(number), messages: &messages }).await
}

/// Delivers to a lane that expects this position.
async fn deliver_after(
    sink: &Sqlite,
    channel: &ChannelRef,
    after: Option<Offset>,
    messages: &[Message],
) -> Result<(), Undelivered> {
    let (lane, through) = (lane(channel), messages.last().unwrap().offset());
    sink.deliver(&Delivery { lane: &lane, epoch: 1, after, through, messages }).await
}

/// Delivers to a lane at its current position, or at the beginning if the lane has no position.
async fn deliver(sink: &Sqlite, channel: &ChannelRef, messages: &[Message]) -> Result<(), Undelivered> {
    let lane = lane(channel);
    let position = sink.position(&lane).await.map_err(|error| Undelivered::after(0, error))?;
    let after = if let Position::At(after) = position { after } else { None };
    if let Position::Missing(_) = position {
        let begin = Recorded {
            lane,
            epoch: 1,
            through: None,
            pending: BTreeSet::new(),
            replayed: BTreeSet::new(),
            confirmed: None,
            late: Vec::new(),
        };
        sink.resume(&begin).await.map_err(|error| Undelivered::after(0, error))?;
    }
    deliver_after(sink, channel, after, messages).await
}

#[tokio::test]
async fn repeated_events_are_stored_once_and_the_position_never_decreases() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [1, 2, 5])).await.unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [2, 5])).await.unwrap();
    deliver(&sink, &channel(2), &records(&channel(2), [2])).await.unwrap();
    assert_eq!(place.offsets(), [1, 2, 5, 2]);
    let through = "select through from order_progress order by channel_id";
    assert_eq!(place.numbers(through), [5, 2]);
    deliver(&sink, &channel(1), &records(&channel(1), [3])).await.unwrap();
    assert_eq!(place.numbers(through), [5, 2]);
    let pending = [2, 4].map(|number| key(&record(&channel(1), number))).into();
    let held = sink.resume(&Recorded { pending, ..recorded(1, 5) }).await.unwrap();
    assert_eq!(held.held, [key(&record(&channel(1), 2))], "the cursor was set, so only pending events are returned");
    let confirmed = Some(Confirmed { position: Some(offset(1)), last: None });
    deliver(&sink, &channel(1), &records(&channel(1), [6])).await.unwrap();
    let ahead = sink.resume(&Recorded { confirmed, ..recorded(1, 2) }).await.unwrap();
    let above = [5, 3, 6].map(|number| key(&record(&channel(1), number)));
    assert_eq!(ahead.held, above, "the events above the cursor are returned in the order of writing");
    drop(sink);
    let left = std::fs::read_dir(place.directory.path()).unwrap().count();
    assert_eq!(left, 1, "only the main file is left after closing");
}

#[tokio::test]
async fn an_older_epoch_writes_nothing() {
    let place = Fixture::new();
    let sink = place.sink();
    sink.resume(&recorded(7, 0)).await.unwrap();
    let refused = at_epoch(&sink, 6, 0, 1).await.unwrap_err();
    assert!(matches!(refused.error, SinkError::Overtaken(_)), "{refused:?}");
    assert!(refused.error.to_string().contains("set epoch = 0"), "{refused:?}");
    at_epoch(&sink, 7, 0, 2).await.unwrap();
    at_epoch(&sink, 0, 2, 3).await.unwrap();
    assert_eq!(place.offsets(), [2, 3]);
}

#[tokio::test]
async fn a_refused_event_stops_only_later_events_of_its_lane() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [1])).await.unwrap();
    place.reader().execute_batch("create unique index mine on \"order\" (event_offset, status) where event_offset = 4; \
        create trigger refuses before insert on \"order\" when new.event_offset = 4 begin select raise(abort, 'no four'); end;").unwrap();
    let batch = records(&channel(1), 2..7);
    let (refused, other) = tokio::join!(async { deliver(&sink, &channel(1), &batch).await }, async {
        deliver(&sink, &channel(2), &records(&channel(2), [9])).await
    });
    let refused = refused.unwrap_err();
    assert_eq!(refused.delivered, 2);
    assert!(matches!(refused.error, SinkError::Refused { fault: Fault::Event, .. }), "{refused:?}");
    assert!(refused.error.to_string().contains("no four"), "{refused:?}");
    other.unwrap();
    assert_eq!(place.numbers("select event_offset from \"order\" where channel_id like '%1' order by id"), [1, 2, 3]);
    assert_eq!(place.numbers("select through from order_progress order by channel_id"), [3, 9]);
}

/// Triggers that refuse or suppress every event from offset 3 on, and one that fails for them because it does not fit the table.
const REFUSE_ALL: [&str; 3] = [
    "create trigger refuses before insert on \"order\" when new.event_offset >= 3 begin select raise(ignore); end",
    "create trigger refuses before insert on \"order\" when new.event_offset >= 3 begin select raise(abort, 'closed'); end",
    "create trigger refuses before insert on \"order\" when new.event_offset >= 3 begin \
     insert into nowhere values (1); end",
];

#[tokio::test]
async fn a_table_that_refuses_every_event_waits_and_one_that_refuses_an_event_names_it() {
    for refuse in REFUSE_ALL {
        let place = Fixture::new();
        let sink = place.sink();
        deliver(&sink, &channel(1), &records(&channel(1), 1..3)).await.unwrap();
        place.reader().execute_batch(refuse).unwrap();
        // A single event, and several.
        for batch in [3..4, 3..7] {
            let refused = deliver(&sink, &channel(1), &records(&channel(1), batch)).await.unwrap_err();
            assert!(
                matches!(refused.error, SinkError::Unavailable { fault: Fault::Operator, .. })
                    && refused.delivered == 0,
                "{refused:?}"
            );
        }
        assert_eq!(place.offsets(), [1, 2], "no other content stays in the table");
        place.reader().execute_batch("drop trigger refuses").unwrap();
        // Only one event is refused, with the general code for errors, even if the event is alone.
        place
            .reader()
            .execute_batch(
                "create trigger refuses before insert on \"order\" when new.event_offset = 3 begin \
            select json('not json'); end",
            )
            .unwrap();
        let refused = deliver(&sink, &channel(1), &records(&channel(1), [3])).await.unwrap_err();
        assert!(matches!(refused.error, SinkError::Refused { fault: Fault::Event, .. }), "{refused:?}");
    }
}

#[tokio::test]
async fn a_row_that_a_trigger_suppresses_is_refused_and_leaves_no_gap_in_the_positions() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [1, 2])).await.unwrap();
    let suppress = "create trigger suppresses before insert on \"order\" when new.event_offset in (2, 4) \
                    begin select raise(ignore); end";
    place.reader().execute_batch(suppress).unwrap();
    // Event 2 has a row.
    let refused = deliver(&sink, &channel(1), &records(&channel(1), 2..7)).await.unwrap_err();
    assert_eq!(refused.delivered, 2);
    assert!(matches!(refused.error, SinkError::Refused { fault: Fault::Event, .. }), "{refused:?}");
    assert!(refused.error.to_string().contains("suppresses rows without an error"), "{refused:?}");
    assert_eq!(place.numbers("select through from order_progress"), [3]);
    deliver(&sink, &channel(1), &records(&channel(1), 5..7)).await.unwrap();
    assert_eq!(place.offsets(), [1, 2, 3, 5, 6]);
    assert_eq!(place.numbers("select position from \"order\" order by id"), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_foreign_key_refuses_only_the_event_that_breaks_it_even_at_the_end_of_a_transaction() {
    for when in ["", " deferrable initially deferred"] {
        let place = Fixture::new();
        let sink = place.sink();
        deliver(&sink, &channel(1), &records(&channel(1), [1])).await.unwrap();
        place
            .reader()
            .execute_batch(&format!(
                "create table known (number integer primary key); insert into known values (1), (2), (3), (5); \
                 alter table \"order\" add column mine integer references known (number){when}; \
                 create trigger fills after insert on \"order\" begin \
                 update \"order\" set mine = new.event_offset where id = new.id; end;"
            ))
            .unwrap();
        let refused = deliver(&sink, &channel(1), &records(&channel(1), 2..6)).await.unwrap_err();
        assert!(matches!(refused.error, SinkError::Refused { fault: Fault::Event, .. }), "{when}: {refused:?}");
        assert_eq!((refused.delivered, place.offsets()), (2, vec![1, 2, 3]), "{when}");
    }
}

#[tokio::test]
async fn transactions_before_a_refused_event_stay() {
    let place = Fixture::new();
    let sink = place.sink();
    let batch = records(&channel(1), 1..=1_100);
    deliver(&sink, &channel(1), &batch[..1]).await.unwrap();
    let refuse = "create trigger refuses before insert on \"order\" when new.event_offset = 700 \
                  begin select raise(abort, 'no'); end;";
    place.reader().execute_batch(refuse).unwrap();
    let refused = deliver(&sink, &channel(1), &batch).await.unwrap_err();
    assert_eq!(refused.delivered, 699);
    assert_eq!(place.numbers("select through from order_progress"), [699]);
    place.reader().execute_batch("drop trigger refuses").unwrap();
    deliver(&sink, &channel(1), &batch[refused.delivered..]).await.unwrap();
    assert_eq!(place.offsets(), (1..=1_100).collect::<Vec<_>>());
    assert_eq!(place.numbers("select through from order_progress"), [1_100]);
}

#[tokio::test]
async fn a_moved_file_is_recreated_and_a_foreign_table_refused() {
    let place = Fixture::new();
    let sink = place.sink();
    assert!(sink.probe().await.unwrap().starts_with("it does not exist yet and will be created"));
    deliver(&sink, &channel(1), &records(&channel(1), [1])).await.unwrap();
    assert!(sink.probe().await.unwrap().contains("with table order"));
    std::fs::rename(&place.settings.path, place.directory.path().join("old.db")).unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [2])).await.unwrap();
    assert_eq!(place.offsets(), [2]);
    place.reader().execute_batch("drop table \"order\"; create table \"order\" (a int)").unwrap();
    let refused = deliver(&sink, &channel(1), &records(&channel(1), [3])).await.unwrap_err();
    assert!(matches!(refused.error, SinkError::Unavailable { fault: Fault::Operator, .. }), "{refused:?}");
    let refused = deliver(&sink, &channel(1), &records(&channel(1), [3])).await.unwrap_err();
    assert!(
        refused.error.to_string().contains("has no column channel_id: it does not belong to channeld"),
        "{refused:?}"
    );
    assert!(sink.probe().await.unwrap_err().to_string().contains("has no column channel_id"));
    place.reader().execute_batch("drop table \"order\"").unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [3])).await.unwrap();
    assert_eq!(place.offsets(), [3], "a table that was dropped is created again");
    for column in ["proof", "confidence", "network_name"] {
        place.reader().execute_batch(&format!("alter table \"order\" drop column {column}")).unwrap();
    }
    deliver(&sink, &channel(1), &records(&channel(1), [4])).await.unwrap_err();
    deliver(&sink, &channel(1), &records(&channel(1), [4])).await.unwrap();
    assert_eq!(place.offsets(), [3, 4], "columns that an older version did not have are created");
}

#[tokio::test]
async fn search_covers_existing_rows() {
    let mut place = Fixture::new();
    let [one, other] = ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "11111111-7425-40de-944b-e07fc1f90ae7"];
    deliver(&place.sink(), &channel(1), &[record_about(&channel(1), 1, one)]).await.unwrap();
    for (search, words) in [(Search::Words, "7c9e6679"), (Search::Trigrams, "c9e667"), (Search::Words, "7c9e6679")] {
        place.settings.search = search;
        let sink = place.sink();
        deliver(&sink, &channel(1), &[record_about(&channel(1), 2, other)]).await.unwrap();
        let found = |words: &str| {
            place.numbers(&format!(
                "select event_offset from order_search join \"order\" on id = order_search.rowid where text match '{words}'"
            ))
        };
        assert_eq!((found(words), found("wallet")), (vec![1], vec![1, 2]), "{search:?}");
        drop(sink);
    }
    place.settings.search = Search::None;
    place.sink().resume(&recorded(1, 2)).await.unwrap();
    assert_eq!(place.numbers("select count(*) from sqlite_master where name in ('order_search', 'order_ends')"), [0]);
}

#[tokio::test]
async fn the_ends_of_ids_are_indexed_in_new_and_existing_rows() {
    let mut place = Fixture::new();
    let [one, other] = ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "7c9e6679-7425-40de-944b-000000000ae7"];
    place.settings.search = Search::Words;
    deliver(&place.sink(), &channel(1), &[record_about(&channel(1), 1, one)]).await.unwrap();
    // The table of an older version.
    place.reader().execute_batch("drop table order_ends").unwrap();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record_about(&channel(1), 2, other)]).await.unwrap();
    let found = |backwards: &str| {
        place.numbers(&format!(
            "select event_offset from order_ends join \"order\" on id = order_ends.rowid where order_ends match '{backwards}' order by 1"
        ))
    };
    assert_eq!((found("7ea0*"), found("7ea09f*"), found("9766e9c7*")), (vec![1, 2], vec![1], vec![]));
}

/// Waits until the table has at most this many rows, and returns how many it has.
async fn until_at_most(place: &Fixture, rows: i64) -> i64 {
    let count = || place.numbers("select count(*) from \"order\"")[0];
    for _ in 0..2_000 {
        if count() <= rows {
            return count();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the table still has {} rows", count());
}

#[tokio::test]
async fn retention_deletes_the_oldest_rows_first() {
    let mut place = Fixture::new();
    place.settings.search = Search::Words;
    place.settings.keep_for = Some(Duration::from_secs(60 * 60));
    deliver(&place.sink(), &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    place
        .reader()
        .execute_batch("update \"order\" set delivered = '2020-01-01T00:00:00.000Z' where event_offset = 1")
        .unwrap();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 3)]).await.unwrap();
    assert_eq!(until_at_most(&place, 2).await, 2);
    assert_eq!(place.offsets(), [2, 3]);
    for (index, word) in [("search", "wallet"), ("ends", "1* OR 2* OR 3*")] {
        let count = format!("select count(*) from order_{index} where order_{index} match '{word}'");
        assert_eq!(place.numbers(&count), [2], "{index}");
    }
    drop(sink);

    place.settings.keep_size = Some(1 << 20);
    let sink = place.sink();
    for number in 0..8 {
        deliver(&sink, &channel(1), &records(&channel(1), 500 * number + 10..500 * number + 510)).await.unwrap();
    }
    let kept = until_at_most(&place, 2_500).await;
    let offsets = place.offsets();
    assert_eq!((offsets.last(), offsets.len()), (Some(&4_009), usize::try_from(kept).unwrap()), "the newest are kept");
    assert!(kept > 100, "{kept}");
}

#[tokio::test]
async fn unused_space_is_mostly_released() {
    let mut place = Fixture::new();
    let sink = place.sink();
    let large = "x".repeat(1 << 20);
    for number in 0..48 {
        deliver(&sink, &channel(1), &[record_about(&channel(1), number, &large)]).await.unwrap();
    }
    drop(sink);
    let pages = || place.numbers("select page_count from pragma_page_count")[0];
    let before = pages();
    assert!(before > 3_000, "{before}");
    place.settings.keep_size = Some(4 << 20);
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 100)]).await.unwrap();
    for _ in 0..2_000 {
        if place.numbers("select page_count from pragma_page_count")[0] < 2_600 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rows = place.numbers("select count(*) from \"order\"")[0];
    assert!((2..=5).contains(&rows), "{rows} rows are left in 4 MiB");
    let after = place.numbers("select page_count from pragma_page_count")[0];
    assert!(after < 2_600, "{after} of {before} pages");
}

#[tokio::test]
async fn a_reader_that_keeps_the_log_growing_is_reported_and_rows_remain() {
    let mut place = Fixture::new();
    place.settings.keep_size = Some(4 << 20);
    let failures = telemetry::metrics::Metrics::default();
    let sink = Sqlite::new(place.settings.clone(), failures.upkeep_failures("s"));
    deliver(&sink, &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    place.until_log_is_empty().await;
    let reader = place.reader();
    reader.execute_batch("begin").unwrap();
    let _: i64 = reader.query_row("select count(*) from \"order\"", [], |row| row.get(0)).unwrap();

    let large = "x".repeat(1 << 20);
    // Upkeep runs after this many rows.
    let small = (100..1_100).map(|number| record(&channel(1), number));
    let batch: Vec<_> = (2..10).map(|number| record_about(&channel(1), number, &large)).chain(small).collect();
    deliver(&sink, &channel(1), &batch).await.unwrap();
    let reported = || failures.upkeep_failures("s").counted(Upkeep::Delete) > 0;
    for _ in 0..2_000 {
        if reported() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(reported(), "the reader is not reported");
    let log = std::fs::metadata(super::files::beside(&place.settings.path, "-wal")).unwrap().len();
    assert!(log > 8 << 20, "{log}");
    assert!(place.offsets().contains(&1_099), "rows remain although the log alone is larger than keep_size");

    reader.execute_batch("rollback").unwrap();
    deliver(&sink, &channel(1), &[record(&channel(1), 2_000)]).await.unwrap();
    place.until_log_is_empty().await;
}
