//! The column `position`, and the feed that reads the table in its order.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use sink::feed::{Committed, FeedPosition, FeedTable, Leased, PageSize};
use sink::{SqliteSettings, sqlite};
use telemetry::metrics::UpkeepFailures;
use tempfile::TempDir;
use tokio::sync::watch;

use super::*;
use crate::support::{everything, random};

/// The positions of the table, in their order, each with the offset and the id of its event. `mine` numbers the rows in the order
/// in which a test inserted them.
const ROWS: &str = "select position, event_offset, coalesce(event_id, '-') from events order by position";

const VALID: Duration = Duration::from_secs(1_000);

/// Longer than a notification takes, and shorter than the interval at which the feed queries the database.
const AT_ONCE: Duration = Duration::from_secs(4);

fn with_feed(url: &str) -> Arc<dyn Sink> {
    postgres("warehouse", PostgresSettings { feed: true, ..settings(url, true) }).unwrap()
}

fn lane_of(sink: &str) -> LaneRef {
    LaneRef { sink: sink.into(), ..lane() }
}

/// Delivers as this lane, at its current position.
async fn deliver_as(sink: &Arc<dyn Sink>, lane: &LaneRef, messages: &[Message]) {
    let after = match sink.position(lane).await.unwrap() {
        Position::At(after) => after,
        Position::Missing(_) => {
            sink.resume(&Recorded { lane: lane.clone(), ..recorded(None) }).await.unwrap();
            None
        }
        Position::Untracked => panic!("tables have positions"),
    };
    let through = messages.last().unwrap().offset();
    sink.deliver(&Delivery { lane, epoch: 1, after, through, messages }).await.unwrap();
}

fn positions(database: &Database) -> Vec<String> {
    database.psql("select position from events order by position")
}

/// A table under random deliveries.
enum Table {
    Postgres(Database),
    Sqlite(TempDir),
}

impl Table {
    fn sink(&self) -> Arc<dyn Sink> {
        match self {
            Self::Postgres(database) => with_feed(&database.url()),
            Self::Sqlite(directory) => {
                let settings = SqliteSettings {
                    path: directory.path().join("events.db"),
                    table: "events".to_owned(),
                    operations: false,
                    search: Search::None,
                    keep_for: None,
                    keep_for_consumers: Vec::new(),
                    keep_size: None,
                    feed: true,
                };
                sqlite(settings, UpkeepFailures::default()).unwrap()
            }
        }
    }

    fn connection(directory: &TempDir) -> rusqlite::Connection {
        rusqlite::Connection::open(directory.path().join("events.db")).unwrap()
    }

    async fn change(&self, statements: &str) {
        match self {
            Self::Postgres(database) => database.change(statements).await,
            Self::Sqlite(directory) => Self::connection(directory).execute_batch(statements).unwrap(),
        }
    }

    /// The position of each row.
    async fn rows(&self) -> BTreeMap<(i64, String), i64> {
        match self {
            Self::Postgres(database) => {
                let rows = database.query(&ROWS.replace("event_id", "event_id::text")).await;
                rows.iter().map(|row| ((row.get(1), row.get(2)), row.get(0))).collect()
            }
            Self::Sqlite(directory) => {
                let connection = Self::connection(directory);
                let mut select = connection.prepare(ROWS).unwrap();
                let row = |row: &rusqlite::Row<'_>| Ok(((row.get(1)?, row.get(2)?), row.get(0)?));
                select.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
            }
        }
    }
}

/// A delivery of up to 300 events in ascending order, new ones, late ones and repeats. Several events can have one offset.
fn batch(rng: &mut StdRng) -> Vec<Message> {
    let count = if rng.random_bool(0.1) { 300 } else { rng.random_range(1..8) };
    let mut keys: Vec<_> = (0..count).map(|_| (rng.random_range(1..400), rng.random_range(0..2_u128))).collect();
    keys.sort_unstable();
    keys.into_iter().map(|(number, id)| event(number, (id > 0).then_some(id))).collect()
}

/// A repeat of an event that has a row.
fn repeat(expected: &BTreeMap<(i64, String), i64>) -> Vec<Message> {
    let repeated = expected.keys().next().expect("a row exists");
    vec![event(repeated.0, Uuid::try_parse(&repeated.1).ok().map(|id| id.as_u128()))]
}

async fn positions_stay_dense(table: Table) {
    let mut rng = random(39);
    let mut sink = table.sink();
    // The position of each event that has a row, and the newest position.
    let (mut expected, mut newest) = (BTreeMap::<(i64, String), i64>::new(), 0);
    for _ in 0..if everything() { 400 } else { 60 } {
        let oldest = expected.values().min().copied().unwrap_or(newest + 1);
        match if expected.is_empty() { 9 } else { rng.random_range(0..10) } {
            0 => {
                // Retention.
                let through = rng.random_range(0..=newest);
                table.change(&format!("delete from events where position <= {through}")).await;
                expected.retain(|_, position| *position > through);
            }
            // Another process. The process before it may have been of an older version: its rows have no positions.
            1 => {
                drop(sink);
                let known = rng.random_range(oldest - 1..=newest);
                table
                    .change(&format!(
                        "update events set position = null where position > {known}; \
                         update events_progress set position = {known}"
                    ))
                    .await;
                sink = table.sink();
                deliver_as(&sink, &lane_of("one"), &repeat(&expected)).await;
                assert_eq!(table.rows().await, expected);
            }
            _ => {
                let lane = lane_of(["one", "other"][rng.random_range(0..2)]);
                let messages = batch(&mut rng);
                deliver_as(&sink, &lane, &messages).await;
                for message in &messages {
                    let EventKey { offset, id } = message.event_key();
                    let id = id.map_or_else(|| "-".to_owned(), |id| id.to_string());
                    expected.entry((offset.get(), id)).or_insert_with(|| {
                        newest += 1;
                        newest
                    });
                }
                assert_eq!(table.rows().await, expected);
                let feed = sink.feed().unwrap();
                let found = feed.newest(lane.channel.id.0).await.unwrap();
                let oldest = expected.values().min().copied().unwrap_or(newest + 1);
                assert_eq!(found, FeedPosition { oldest: Some(oldest), newest });
                let page = feed.page(lane.channel.id.0, oldest - 1, of_any_size(usize::MAX)).await.unwrap();
                assert!(page.events.iter().map(|event| event.position).eq(oldest..=newest), "{page:?}");
            }
        }
    }
}

#[tokio::test]
async fn positions_in_postgresql_are_dense_and_never_change() {
    let Some((database, _)) = database().await else { return };
    positions_stay_dense(Table::Postgres(database)).await;
}

#[tokio::test]
async fn positions_in_sqlite_are_dense_and_never_change() {
    positions_stay_dense(Table::Sqlite(tempfile::tempdir().unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_of_one_channel_leave_no_gap_and_store_each_event_once() {
    let Some((database, sink)) = database().await else { return };
    for name in ["a", "b", "c"] {
        sink.resume(&Recorded { lane: lane_of(name), ..recorded(None) }).await.unwrap();
    }
    let writers = ["a", "b", "c"].map(|name| {
        // Each one is a process of its own.
        let sink = sink_at(&database.url());
        tokio::spawn(async move {
            for start in 0..12 {
                deliver_as(&sink, &lane_of(name), &events(start * 50 + 1..=start * 50 + 300)).await;
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(offsets(&database), numbers(1..=850));
    assert_eq!(positions(&database), numbers(1..=850));
    assert_eq!(database.psql("select distinct position from events_progress"), ["850"]);
}

/// Removes the positions, as if an older version had created the tables. The rows then count as delivered in the order 7, 6, …
const WITHOUT_POSITIONS: &str = "alter table events drop column position; alter table events_progress drop column position; \
    update events set delivered = now() - event_offset * interval '1 minute'";

#[tokio::test]
async fn an_upgrade_numbers_the_rows_in_the_order_of_delivery() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    database.psql(WITHOUT_POSITIONS);
    let sink = sink_at(&database.url());
    let said = sink.probe().await.unwrap();
    assert!(said.contains("this SQL will be run: ") && said.contains("\"events_position\""), "{said}");
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(7));
    deliver(&sink, Some(7), &events([2, 8])).await.unwrap();
    let order = "select event_offset from events order by position";
    assert_eq!(database.psql(order), numbers([7, 6, 5, 4, 3, 2, 1, 8]));
    assert_eq!(positions(&database), numbers(1..=8));
    let said = sink.probe().await.unwrap();
    assert!(said.contains("table public.events is there") && !said.contains("will be run"), "{said}");
}

#[tokio::test]
async fn without_permission_to_add_the_column_the_sql_is_printed_and_the_role_may_number_the_rows() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    let role = format!("reader_of_{}", database.name);
    database.psql(&format!(
        "create role {role} login; grant select, insert on events to {role}; \
         grant select, insert, update on events_progress to {role}"
    ));
    database.psql(WITHOUT_POSITIONS);
    let sink = postgres("warehouse", settings(&database.url_as(&role), false)).unwrap();
    let said = sink.probe().await.unwrap_err().to_string();
    let (why, sql) = said.split_once(" run: ").unwrap_or_else(|| panic!("{said}"));
    assert!(why.contains("create is false"), "{said}");
    for _ in 0..2 {
        database.psql(sql);
    }
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(7));
    assert_eq!(positions(&database), numbers(1..=7));
    // Without the right, nothing is delivered before the older rows have their positions.
    database.psql(&format!(
        "revoke update (position) on events from {role}; update events set position = null where position > 5"
    ));
    let refused = deliver(&sink, Some(7), &events([8])).await.unwrap_err();
    assert!(refused.error.to_string().contains("update of the column position"), "{refused:?}");
    assert_eq!(offsets(&database), numbers(1..=7));
}

#[tokio::test]
async fn rows_that_an_older_version_adds_meanwhile_get_positions_before_the_next_event() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    let columns = "channel_id, channel, type, delivered, verification, record";
    let older = format!(
        "insert into events (event_offset, {columns}) select event_offset + 7, {columns} from events \
         where event_offset <= 3 and position is not null"
    );
    database.psql(&older);
    // More rows than one statement writes.
    deliver(&sink, Some(7), &events(11..=500)).await.unwrap();
    let order = "select event_offset from events order by position";
    assert_eq!(database.psql(order), numbers((1..=500).collect::<Vec<_>>()));
    assert_eq!(positions(&database), numbers(1..=500));
}

/// At most this number of events, of any size.
fn of_any_size(events: usize) -> PageSize {
    PageSize { events, bytes: usize::MAX }
}

async fn lease(feed: &Arc<dyn FeedTable>, consumer: &str, valid: Duration) -> Leased {
    feed.lease(consumer, lane().channel.id.0, of_any_size(2), valid).await.unwrap()
}

/// The lease and the positions of its events.
fn leased(leased: Leased) -> (String, Vec<i64>) {
    match leased {
        Leased::Events { lease, events, .. } => (lease, events.iter().map(|event| event.position).collect()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn consumers_of_two_instances_never_have_the_same_lease() {
    let Some((database, _)) = database().await else { return };
    let sinks = [with_feed(&database.url()), with_feed(&database.url())];
    seven(&sinks[0]).await;
    let feeds = sinks.each_ref().map(|sink| sink.feed().unwrap());
    let commit = async |feed: &Arc<dyn FeedTable>, lease: &str, through| {
        feed.commit("ledger", lane().channel.id.0, lease, through).await.unwrap()
    };
    let (first, other) = tokio::join!(lease(&feeds[0], "ledger", VALID), lease(&feeds[1], "ledger", VALID));
    let (first, other) = if other == Leased::Held { (first, other) } else { (other, first) };
    let (first, positions) = leased(first);
    assert_eq!((positions, other), (vec![1, 2], Leased::Held));
    assert_eq!(leased(lease(&feeds[1], "other", VALID).await).1, [1, 2]);
    for beyond in [0, 3] {
        assert_eq!(commit(&feeds[1], &first, beyond).await, Committed::Beyond);
    }
    assert_eq!(commit(&feeds[1], &first, 2).await, Committed::Moved);
    assert_eq!(commit(&feeds[0], &first, 2).await, Committed::NotHeld);

    let (expired, positions) = leased(lease(&feeds[0], "ledger", Duration::ZERO).await);
    assert_eq!(positions, [3, 4]);
    assert_eq!(commit(&feeds[0], &expired, 4).await, Committed::NotHeld);
    let (second, positions) = leased(lease(&feeds[1], "ledger", VALID).await);
    assert_eq!(positions, [3, 4]);
    assert_eq!(commit(&feeds[0], &expired, 4).await, Committed::NotHeld);
    assert_eq!(commit(&feeds[0], &second, 4).await, Committed::Moved);
    let states = feeds[0].consumers().await.unwrap();
    let found: Vec<_> = states.iter().map(|of| (&*of.consumer, of.through, of.leased_until.is_some())).collect();
    assert_eq!(found, [("ledger", 4, false), ("other", 0, true)]);
    let since: Vec<_> = states.iter().map(|of| of.waiting_since.expect("events wait")).collect();
    let now = jiff::Timestamp::now();
    assert!(since.iter().all(|since| now.duration_since(*since).as_secs().abs() <= 60), "{since:?}");
    let channels = async || {
        let channels = feeds[0].channels().await.unwrap();
        channels
            .iter()
            .map(|of| (of.position.oldest, of.position.newest, of.oldest_since.is_some()))
            .collect::<Vec<_>>()
    };
    assert_eq!(channels().await, [(Some(1), 7, true)]);

    database.psql("delete from events where position = 5");
    assert_eq!(lease(&feeds[0], "ledger", VALID).await, Leased::Gone { oldest: 6 });
    let gone: Vec<_> = feeds[0].consumers().await.unwrap().iter().map(|of| of.is_gone).collect();
    assert_eq!(gone, [true, false]);
    database.psql("delete from events where position < 6");
    assert_eq!(channels().await, [(Some(6), 7, true)]);
    assert_eq!(lease(&feeds[0], "ledger", VALID).await, Leased::Gone { oldest: 6 });
    feeds[0].set_cursor("ledger", lane().channel.id.0, 5).await.unwrap();
    assert_eq!(leased(lease(&feeds[0], "ledger", VALID).await).1, [6, 7]);
    database.psql("delete from events");
    assert_eq!(channels().await, [(Some(8), 7, false)], "the next row will be the oldest");
}

#[tokio::test]
async fn a_consumer_ahead_of_a_restored_table_receives_every_event_with_a_position_again() {
    let Some((database, _)) = database().await else { return };
    let sink = with_feed(&database.url());
    seven(&sink).await;
    let feed = sink.feed().unwrap();
    let id = lane().channel.id.0;
    feed.set_cursor("ledger", id, 3).await.unwrap();
    let held = feed.lease("ledger", id, of_any_size(9), VALID).await.unwrap();
    let (held, positions) = leased(held);
    assert_eq!(positions, [4, 5, 6, 7]);
    feed.set_cursor("other", id, 7).await.unwrap();
    // A backup without the table of consumers.
    database.psql("delete from events where position > 4; update events_progress set position = 4, through = 4");
    let commit = async || feed.commit("ledger", id, &held, 7).await.unwrap();
    assert_eq!(commit().await, Committed::NotHeld, "the table has no position 7");
    assert_eq!(lease(&feed, "other", VALID).await, Leased::Nothing);
    // The events arrive in another order, and one more than before.
    deliver(&sink, Some(4), &events([5, 8, 9, 10])).await.unwrap();
    assert_eq!(commit().await, Committed::NotHeld, "another event has position 7");
    assert_eq!(database.psql("select through from events_consumers order by consumer"), numbers([3, 4]));
    assert_eq!(leased(lease(&feed, "ledger", VALID).await).1, [4, 5]);
    assert_eq!(leased(lease(&feed, "other", VALID).await).1, [5, 6]);
}

/// Restores the tables to the state after event 4, but not the table of consumers.
const RESTORED: &str = "delete from events where position > 4; update events_progress set position = 4, through = 4";

#[tokio::test]
async fn an_instance_without_a_feed_moves_the_cursors_of_a_restored_table_back() {
    let Some((database, without_feed)) = database().await else { return };
    seven(&without_feed).await;
    // Another instance creates the table of consumers while the lane runs.
    let feed = with_feed(&database.url()).feed().unwrap();
    feed.set_cursor("ledger", lane().channel.id.0, 7).await.unwrap();
    database.psql(RESTORED);
    displaced(deliver(&without_feed, Some(7), &events([8])).await);
    assert_eq!(resumed(&without_feed, &confirmed(7)).await, at(4));
    // More rows than one statement writes.
    deliver(&without_feed, Some(4), &events(5..=1_500)).await.unwrap();
    assert_eq!(database.psql("select through from events_consumers"), ["4"]);
    assert_eq!(leased(lease(&feed, "ledger", VALID).await).1, [5, 6]);
    assert_eq!(positions(&database), numbers(1..=1_500));

    // No table of consumers, and another program's table with its name.
    for (change, last) in [("drop table events_consumers", 1_501), ("create table events_consumers (name text)", 1_502)]
    {
        database.psql(change);
        assert_eq!(resumed(&without_feed, &confirmed(last - 1)).await, at(last - 1), "{change}");
        deliver(&without_feed, Some(last - 1), &events([last])).await.unwrap();
    }
    assert_eq!(positions(&database), numbers(1..=1_502));
}

#[tokio::test]
async fn an_instance_without_rights_on_the_consumers_delivers_and_leaves_the_cursors() {
    let Some((database, _)) = database().await else { return };
    let served = with_feed(&database.url());
    seven(&served).await;
    let feed = served.feed().unwrap();
    feed.set_cursor("ledger", lane().channel.id.0, 7).await.unwrap();
    let role = format!("writer_of_{}", database.name);
    database.psql(&format!(
        "create role {role} login; grant select, insert, update (position) on events to {role}; \
         grant select, insert, update on events_progress to {role}"
    ));
    database.psql(RESTORED);
    let sink = postgres("warehouse", settings(&database.url_as(&role), false)).unwrap();
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(4));
    deliver(&sink, Some(4), &events([5])).await.unwrap();
    assert_eq!(database.psql("select through from events_consumers"), ["7"]);
    database.psql(&format!("grant select, update on events_consumers to {role}"));
    assert_eq!(resumed(&sink, &confirmed(5)).await, at(5));
    deliver(&sink, Some(5), &events([6])).await.unwrap();
    assert_eq!(database.psql("select through from events_consumers"), ["5"]);
}

#[tokio::test]
async fn a_lane_that_begins_records_the_positions_of_existing_rows() {
    let Some((database, _)) = database().await else { return };
    let sink = with_feed(&database.url());
    seven(&sink).await;
    let feed = sink.feed().unwrap();
    feed.set_cursor("ledger", lane().channel.id.0, 5).await.unwrap();
    for (change, recorded) in [
        // An operator numbered the rows before the upgrade.
        ("update events_progress set position = 0", confirmed(7)),
        // The row of the lane was removed.
        ("delete from events_progress", recorded(Some(7))),
    ] {
        database.psql(change);
        assert_eq!(lease(&feed, "ledger", VALID).await, Leased::Nothing, "{change}");
        assert_eq!(resumed(&sink, &recorded).await, at(7), "{change}");
        assert_eq!(feed.newest(lane().channel.id.0).await.unwrap().newest, 7, "{change}");
        assert_eq!(leased(lease(&feed, "ledger", Duration::ZERO).await).1, [6, 7], "{change}");
    }
}

#[tokio::test]
async fn a_lease_from_before_the_clock_was_set_back_is_not_valid() {
    let Some((database, _)) = database().await else { return };
    let sink = with_feed(&database.url());
    seven(&sink).await;
    let feed = sink.feed().unwrap();
    let (old, _) = leased(lease(&feed, "ledger", VALID).await);
    database.psql("update events_consumers set leased_until = now() + interval '1 day'");
    assert_eq!(feed.consumers().await.unwrap()[0].leased_until, None);
    assert_eq!(feed.commit("ledger", lane().channel.id.0, &old, 2).await.unwrap(), Committed::NotHeld);
    assert_eq!(leased(lease(&feed, "ledger", VALID).await).1, [1, 2]);
    assert_eq!(lease(&feed, "ledger", VALID).await, Leased::Held);
}

/// Delivers seven events, and returns the changes that a reader of the feed sees. The first comparison has found the events, so
/// the feed listens.
async fn listening(writer: &Arc<dyn Sink>, reader: &Arc<dyn Sink>) -> watch::Receiver<u64> {
    seven(writer).await;
    let mut changes = reader.feed().unwrap().changes();
    tokio::time::timeout(crate::support::LONGEST_WAIT, changes.changed()).await.unwrap().unwrap();
    changes
}

#[tokio::test]
async fn a_delivery_of_another_instance_wakes_the_readers() {
    let Some((database, _)) = database().await else { return };
    let [writer, reader] = [with_feed(&database.url()), with_feed(&database.url())];
    let mut changes = listening(&writer, &reader).await;
    deliver(&writer, Some(7), &events([8])).await.unwrap();
    tokio::time::timeout(AT_ONCE, changes.changed()).await.expect("a notification arrives").unwrap();
}

#[tokio::test]
async fn a_delivery_wakes_the_readers_although_the_connection_for_notifications_was_lost() {
    let Some((database, _)) = database().await else { return };
    let [writer, reader] = [with_feed(&database.url()), with_feed(&database.url())];
    let mut changes = listening(&writer, &reader).await;
    // The last statement of this connection is `listen`, or the query that compares the positions.
    let ended = database.psql(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = current_database() \
         and pid <> pg_backend_pid() and (query like 'listen %' or query like 'select coalesce(sum(%')",
    );
    assert_eq!(ended, ["t"], "one connection listens");
    deliver(&writer, Some(7), &events([8])).await.unwrap();
    tokio::time::timeout(crate::support::LONGEST_WAIT, changes.changed())
        .await
        .expect("the readers are woken")
        .unwrap();
    // The feed listens again.
    deliver(&writer, Some(8), &events([9])).await.unwrap();
    tokio::time::timeout(AT_ONCE, changes.changed()).await.expect("a notification arrives").unwrap();
}

#[tokio::test]
async fn a_row_that_another_program_writes_at_the_same_time_leaves_no_gap() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    let other = database.server.client(&database.name).await;
    let nine = "begin; insert into events (channel_id, event_offset, event_id, channel, type, delivered, verification, record) \
                select channel_id, 9, '00000000-0000-0000-0000-000000000009', channel, type, delivered, verification, record \
                from events where event_offset = 7";
    other.batch_execute(nine).await.unwrap();
    let three = events(8..=10);
    let waits = async {
        let waiting =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'transactionid'";
        while database.number(waiting).await == 0 {
            tokio::task::yield_now().await;
        }
        other.batch_execute("commit").await.unwrap();
    };
    let both = async { tokio::join!(deliver(&sink, Some(7), &three), waits) };
    let (delivered, ()) = tokio::time::timeout(crate::support::LONGEST_WAIT, both).await.expect("the statement waits");
    delivered.unwrap();
    assert_eq!(offsets(&database), numbers(1..=10));
    assert_eq!(positions(&database), numbers(1..=10));
}

#[tokio::test]
async fn rows_that_are_not_on_the_servers_disk_yet_are_not_read() {
    let Some((database, _)) = database().await else { return };
    let sink = with_feed(&database.url());
    seven(&sink).await;
    // The statement that would wait for the disk is refused.
    database.psql("alter table events add constraint mine check (event_offset < 400)");
    let refused = deliver(&sink, Some(7), &events(8..=500)).await.unwrap_err();
    assert!(refused.delivered == 392, "{refused:?}");
    let feed = sink.feed().unwrap();
    assert_eq!(feed.newest(lane().channel.id.0).await.unwrap().newest, 399);
    // As if the server had not been asked yet.
    database.psql("update events_progress set position = 9");
    assert_eq!(feed.page(lane().channel.id.0, 0, of_any_size(900)).await.unwrap().events.len(), 9);
    database.psql("alter table events drop constraint mine");
    deliver(&sink, Some(399), &events(400..=500)).await.unwrap();
    assert_eq!(feed.newest(lane().channel.id.0).await.unwrap().newest, 500);
    assert_eq!(positions(&database), numbers(1..=500));
}
