//! Positions, the feed that reads them, and the consumers that hold rows back.

use std::sync::mpsc;

use futures_util::FutureExt;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::*;
use crate::feed::lease::{ConsumerRef, LeaseStore, NewLease};
use crate::feed::{Committed, FeedError, FeedPosition, FeedTable, Leased, PageSize};
use crate::settings::{ConsumedChannel, FeedConsumer};

/// The positions in the order in which the rows were written.
const POSITIONS: &str = "select position from \"order\" order by id";

const VALID: Duration = Duration::from_secs(1_000);

/// Nine events of any size.
const NINE: PageSize = PageSize { events: 9, bytes: usize::MAX };

fn place() -> Fixture {
    let mut place = Fixture::new();
    place.settings.feed = true;
    place
}

fn feed(sink: &Sqlite) -> Arc<dyn FeedTable> {
    Sink::feed(sink).unwrap()
}

/// The table as an older version leaves it. The rows from `first` on have no positions.
fn written_by_an_older_version(place: &Fixture, first: i64) {
    let change = format!(
        "drop index if exists order_position; alter table order_progress drop column position; \
         update \"order\" set position = null where id >= {first};"
    );
    place.reader().execute_batch(&change).unwrap();
}

async fn lease(feed: &Arc<dyn FeedTable>, limit: usize, valid: Duration) -> Leased {
    feed.lease("ledger", channel(1).id.0, PageSize { events: limit, bytes: usize::MAX }, valid).await.unwrap()
}

/// The lease and the positions of its events.
fn events(leased: Leased) -> (String, Vec<i64>) {
    match leased {
        Leased::Events { lease, events, .. } => (lease, events.iter().map(|event| event.position).collect()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn positions_follow_the_order_of_delivery_and_a_repeat_makes_no_gap() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [1, 4, 5])).await.unwrap();
    deliver(&sink, &channel(2), &records(&channel(2), [9])).await.unwrap();
    // A late delivery among repeats.
    deliver(&sink, &channel(1), &records(&channel(1), [1, 3, 4])).await.unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [6])).await.unwrap();
    assert_eq!(place.offsets(), [1, 4, 5, 9, 3, 6]);
    assert_eq!(place.numbers(POSITIONS), [1, 2, 3, 1, 4, 5]);
    assert_eq!(place.numbers("select position from order_progress order by channel_id"), [5, 1]);
}

#[tokio::test]
async fn several_lanes_of_one_channel_share_the_positions_of_a_table() {
    let place = Fixture::new();
    let sink = place.sink();
    let other = LaneRef { sink: "other".into(), ..lane(&channel(1)) };
    for lane in [lane(&channel(1)), other.clone()] {
        let recorded = Recorded {
            lane,
            epoch: 1,
            through: None,
            pending: BTreeSet::new(),
            replayed: BTreeSet::new(),
            confirmed: None,
            late: Vec::new(),
        };
        sink.resume(&recorded).await.unwrap();
    }
    for (lane, after, offsets) in [
        (lane(&channel(1)), None, 1..3),
        (other.clone(), None, 1..4),
        (lane(&channel(1)), Some(2), 3..6),
        (other, Some(3), 4..7),
    ] {
        let messages = records(&channel(1), offsets);
        let (after, through) = (after.map(offset), messages.last().unwrap().offset());
        sink.deliver(&Delivery { lane: &lane, epoch: 1, after, through, messages: &messages }).await.unwrap();
    }
    assert_eq!(place.numbers(POSITIONS), [1, 2, 3, 4, 5, 6]);
    assert_eq!(place.numbers("select position from order_progress"), [6, 6]);
}

#[tokio::test]
async fn a_position_is_not_used_again_after_the_rows_or_the_lanes_were_removed() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..4)).await.unwrap();
    place.reader().execute_batch("delete from \"order\"").unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [4])).await.unwrap();
    assert_eq!(place.numbers(POSITIONS), [4]);
    place.reader().execute_batch("delete from order_progress").unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [5])).await.unwrap();
    assert_eq!(place.numbers(POSITIONS), [4, 5]);
}

#[tokio::test]
async fn rows_of_an_older_version_are_numbered_in_the_order_in_which_they_were_written() {
    let place = Fixture::new();
    for (from, remove) in [(1, true), (3, false)] {
        let sink = place.sink();
        for number in [5, 1, 3] {
            deliver(&sink, &channel(1), &records(&channel(1), [number])).await.unwrap();
            deliver(&sink, &channel(2), &records(&channel(2), [number])).await.unwrap();
        }
        drop(sink);
        written_by_an_older_version(&place, from);
        if remove {
            place.reader().execute_batch("alter table \"order\" drop column position").unwrap();
        }
        let sink = place.sink();
        if remove {
            let seen = sink.probe().await.unwrap();
            assert!(seen.contains("1 columns will be added"), "{seen}");
        }
        deliver(&sink, &channel(1), &records(&channel(1), [5, 7])).await.unwrap();
        assert_eq!(place.numbers(POSITIONS), [1, 1, 2, 2, 3, 3, 4]);
        assert_eq!(place.numbers("select position from order_progress order by channel_id"), [4, 3]);
        place.assert_sound();
        drop(sink);
        place
            .reader()
            .execute_batch("delete from \"order\" where event_offset = 7; update order_progress set position = 3")
            .unwrap();
    }
}

#[tokio::test]
async fn rows_that_an_older_version_adds_meanwhile_get_positions_with_the_next_delivery() {
    let place = Fixture::new();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    let columns = "channel_id, channel, type, delivered, verification, record";
    place
        .reader()
        .execute_batch(&format!(
            "insert into \"order\" (event_offset, event_id, {columns}) select event_offset + 7, event_id || '0', {columns} \
             from \"order\" order by id"
        ))
        .unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [3])).await.unwrap();
    assert_eq!(place.offsets(), [1, 2, 8, 9, 3]);
    assert_eq!(place.numbers(POSITIONS), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_write_by_another_connection_wakes_readers() {
    let place = place();
    let (sink, other) = (place.sink(), place.sink());
    deliver(&sink, &channel(1), &records(&channel(1), [1])).await.unwrap();
    let feed = feed(&sink);
    let mut changes = feed.changes();
    // The feed sees the database for the first time.
    changes.changed().await.unwrap();
    deliver(&other, &channel(1), &records(&channel(1), [2])).await.unwrap();
    changes.changed().await.unwrap();
    assert_eq!(feed.newest(channel(1).id.0).await.unwrap().newest, 2);
}

#[tokio::test]
async fn a_page_has_the_records_in_order_and_is_bounded() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    assert_eq!(feed.newest(channel(1).id.0).await.unwrap(), FeedPosition::default(), "the database does not exist yet");
    let mut changes = feed.changes();
    changes.mark_unchanged();
    let messages = records(&channel(1), [1, 3, 4, 2]);
    for message in &messages {
        deliver(&sink, &channel(1), std::slice::from_ref(message)).await.unwrap();
    }
    assert!(changes.has_changed().unwrap(), "a delivery wakes readers");
    let page =
        async |after, limit, bytes| feed.page(channel(1).id.0, after, PageSize { events: limit, bytes }).await.unwrap();
    let whole = page(0, 10, usize::MAX).await;
    assert_eq!(whole.position, FeedPosition { oldest: Some(1), newest: 4 });
    let expected: Vec<_> = messages.iter().map(|message| std::str::from_utf8(message.body()).unwrap()).collect();
    assert_eq!(whole.events.iter().map(|event| &*event.record).collect::<Vec<_>>(), expected);
    let bytes = expected[2].len() + expected[3].len();
    for (after, limit, bytes, positions) in [
        (2, 10, bytes, &[3, 4][..]),
        (2, 10, bytes - 1, &[3]),
        (2, 10, 0, &[3]),
        (1, 2, bytes, &[2, 3]),
        (4, 9, 9, &[]),
    ] {
        let found: Vec<_> = page(after, limit, bytes).await.events.iter().map(|event| event.position).collect();
        assert_eq!(found, positions, "{after} {limit} {bytes}");
    }
    place.reader().execute_batch("delete from \"order\" where position < 3").unwrap();
    assert_eq!((page(1, 1, 0).await.gone, page(2, 1, 0).await.gone), (Some(3), None));
    place.reader().execute_batch("delete from \"order\"").unwrap();
    assert_eq!((page(3, 1, 0).await.gone, page(4, 1, 0).await.gone), (Some(5), None), "no row is left");
}

#[tokio::test]
async fn nothing_is_read_past_rows_that_were_deleted_in_the_middle() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..7)).await.unwrap();
    feed.set_cursor("ledger", channel(1).id.0, 2).await.unwrap();
    feed.set_cursor("other", channel(1).id.0, 1).await.unwrap();
    place.reader().execute_batch("delete from \"order\" where position in (3, 4, 6)").unwrap();
    for (after, positions, gone) in [
        (0, &[1, 2][..], None),
        (2, &[], Some(5)),
        (3, &[], Some(5)),
        (4, &[5], None),
        (5, &[], Some(7)),
        (6, &[], None),
    ] {
        let page = feed.page(channel(1).id.0, after, NINE).await.unwrap();
        let found: Vec<_> = page.events.iter().map(|event| event.position).collect();
        assert_eq!((&*found, page.gone), (positions, gone), "{after}");
    }
    assert_eq!(lease(&feed, 9, VALID).await, Leased::Gone { oldest: 5 });
    let states = feed.consumers().await.unwrap();
    let gone: Vec<_> = states.iter().map(|state| (&*state.consumer, state.is_gone)).collect();
    assert_eq!(gone, [("ledger", true), ("other", false)]);
    feed.set_cursor("ledger", channel(1).id.0, 4).await.unwrap();
    assert_eq!(events(lease(&feed, 9, VALID).await).1, [5]);
    place.reader().execute_batch("delete from \"order\" where position = 1").unwrap();
    let new = feed.lease("new", channel(1).id.0, NINE, VALID).await.unwrap();
    assert_eq!(events(new).1, [2], "a new consumer begins with the oldest row");
}

#[tokio::test]
async fn a_lease_excludes_others_until_it_is_committed_or_expires() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    assert_eq!(lease(&feed, 2, VALID).await, Leased::Nothing);
    deliver(&sink, &channel(1), &records(&channel(1), 1..6)).await.unwrap();
    let commit = async |lease: &str, through| feed.commit("ledger", channel(1).id.0, lease, through).await.unwrap();

    let (first, positions) = events(lease(&feed, 2, VALID).await);
    assert_eq!(positions, [1, 2]);
    assert_eq!(lease(&feed, 2, VALID).await, Leased::Held);
    let state = feed.consumers().await.unwrap().remove(0);
    assert!(state.through == 0 && state.leased_until.unwrap() > Timestamp::now(), "{state:?}");
    assert!(matches!(
        feed.lease("other", channel(1).id.0, PageSize { events: 9, bytes: 0 }, VALID).await.unwrap(),
        Leased::Events { .. }
    ));
    assert_eq!(commit(&first, 3).await, Committed::Beyond);
    assert_eq!(commit(&first, 0).await, Committed::Beyond);
    assert_eq!(commit("another", 2).await, Committed::NotHeld);
    assert_eq!(commit(&first, 1).await, Committed::Moved);
    assert_eq!(commit(&first, 2).await, Committed::NotHeld, "the commit has ended the lease");

    let (expired, positions) = events(lease(&feed, 2, Duration::ZERO).await);
    assert_eq!(positions, [2, 3]);
    assert_eq!(commit(&expired, 2).await, Committed::NotHeld);
    let (second, positions) = events(lease(&feed, 1, VALID).await);
    assert_eq!(positions, [2]);
    assert_eq!(commit(&expired, 2).await, Committed::NotHeld);
    assert_eq!(commit(&second, 2).await, Committed::Moved);
    let state = feed.consumers().await.unwrap().remove(0);
    assert_eq!((&*state.consumer, state.through, state.leased_until), ("ledger", 2, None));

    place.reader().execute_batch("delete from \"order\" where position <= 3").unwrap();
    assert_eq!(lease(&feed, 2, VALID).await, Leased::Gone { oldest: 4 });
    feed.set_cursor("ledger", channel(1).id.0, 3).await.unwrap();
    assert_eq!(events(lease(&feed, 9, VALID).await).1, [4, 5]);
    let refused = feed.set_cursor("ledger", channel(1).id.0, 6).await;
    assert!(matches!(refused, Err(FeedError::TooHigh { newest: 5, .. })), "{refused:?}");
    // A new consumer begins with the oldest row.
    let leased = feed.lease("new", channel(1).id.0, NINE, VALID).await.unwrap();
    assert_eq!(events(leased).1, [4, 5]);
}

#[tokio::test]
async fn a_lease_from_before_the_clock_was_set_back_is_not_valid() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    let (old, _) = events(lease(&feed, 9, VALID).await);
    let later = "update order_consumers set leased_until = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 day')";
    place.reader().execute_batch(later).unwrap();
    assert_eq!(feed.consumers().await.unwrap()[0].leased_until, None);
    assert_eq!(feed.commit("ledger", channel(1).id.0, &old, 2).await.unwrap(), Committed::NotHeld);
    assert_eq!(events(lease(&feed, 9, VALID).await).1, [1, 2]);
    assert_eq!(lease(&feed, 9, VALID).await, Leased::Held);
}

#[tokio::test]
async fn only_one_of_many_concurrent_requests_gets_the_lease() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..3)).await.unwrap();
    let requests = futures_util::future::join_all((0..20).map(|_| lease(&feed, 9, VALID))).await;
    let taken = requests.iter().filter(|leased| matches!(leased, Leased::Events { .. })).count();
    let held = requests.iter().filter(|leased| **leased == Leased::Held).count();
    assert_eq!((taken, held), (1, 19));
}

#[tokio::test]
async fn a_cursor_above_the_positions_of_a_restored_table_moves_back() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..6)).await.unwrap();
    feed.set_cursor("ledger", channel(1).id.0, 5).await.unwrap();
    place
        .reader()
        .execute_batch("delete from \"order\" where position > 2; update order_progress set position = 2, through = 2")
        .unwrap();
    assert_eq!(lease(&feed, 9, VALID).await, Leased::Nothing);
    deliver(&sink, &channel(1), &records(&channel(1), 3..6)).await.unwrap();
    assert_eq!(events(lease(&feed, 9, VALID).await).1, [3, 4, 5]);
}

/// Removes the rows after the second one, like a restore from a backup that does not contain the table of consumers.
const RESTORE: &str = "delete from \"order\" where position > 2; update order_progress set position = 2, through = 2";

#[tokio::test]
async fn a_consumer_ahead_of_a_restored_table_receives_every_event_with_a_position_again() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..6)).await.unwrap();
    feed.set_cursor("ledger", channel(1).id.0, 1).await.unwrap();
    let (held, positions) = events(lease(&feed, 9, VALID).await);
    assert_eq!(positions, [2, 3, 4, 5]);
    feed.set_cursor("other", channel(1).id.0, 5).await.unwrap();
    place.reader().execute_batch(RESTORE).unwrap();
    let commit = async || feed.commit("ledger", channel(1).id.0, &held, 5).await.unwrap();
    assert_eq!(commit().await, Committed::NotHeld, "the table has no position 5");
    // The events arrive in another order, and one more than before.
    deliver(&sink, &channel(1), &records(&channel(1), [3, 6, 7, 9])).await.unwrap();
    assert_eq!(commit().await, Committed::NotHeld, "another event has position 5");
    let cursors = place.numbers("select through from order_consumers order by consumer");
    assert_eq!(cursors, [1, 2]);
    assert_eq!(events(lease(&feed, 9, VALID).await).1, [2, 3, 4, 5, 6]);
    let other = feed.lease("other", channel(1).id.0, NINE, VALID).await.unwrap();
    assert_eq!(events(other).1, [3, 4, 5, 6]);
}

#[tokio::test]
async fn a_lane_that_begins_records_the_positions_of_existing_rows() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..6)).await.unwrap();
    feed.set_cursor("ledger", channel(1).id.0, 4).await.unwrap();
    place.reader().execute_batch("delete from order_progress").unwrap();
    assert_eq!(lease(&feed, 9, VALID).await, Leased::Nothing, "nothing is known about the positions now");
    assert_eq!(place.numbers("select through from order_consumers"), [4]);
    sink.resume(&recorded(1, 5)).await.unwrap();
    assert_eq!(feed.newest(channel(1).id.0).await.unwrap().newest, 5);
    assert_eq!(events(lease(&feed, 9, VALID).await).1, [5]);
    place.reader().execute_batch("update order_progress set position = 0").unwrap();
    let confirmed = Some(crate::Confirmed::default());
    sink.resume(&Recorded { confirmed, ..recorded(1, 5) }).await.unwrap();
    assert_eq!(feed.newest(channel(1).id.0).await.unwrap().newest, 5);
}

#[tokio::test]
async fn an_instance_without_a_feed_moves_cursors_back_too() {
    let mut place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..6)).await.unwrap();
    feed(&sink).set_cursor("ledger", channel(1).id.0, 5).await.unwrap();
    drop(sink);
    place.reader().execute_batch(RESTORE).unwrap();
    place.settings.feed = false;
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 3..9)).await.unwrap();
    assert_eq!(place.numbers("select through from order_consumers"), [2]);
    drop(sink);
    place.reader().execute_batch("drop table \"order\"").unwrap();
    deliver(&place.sink(), &channel(1), &records(&channel(1), 1..9)).await.unwrap();
    assert_eq!(place.numbers("select through from order_consumers"), [] as [i64; 0], "the table is another one");
}

#[tokio::test]
async fn a_feed_follows_a_replaced_file_and_leaves_no_log_behind() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &records(&channel(1), 1..4)).await.unwrap();
    assert_eq!(feed.newest(channel(1).id.0).await.unwrap().newest, 3);
    let kept = place.directory.path().join("kept.db");
    std::fs::rename(&place.settings.path, &kept).unwrap();
    deliver(&sink, &channel(1), &records(&channel(1), [8])).await.unwrap();
    assert_eq!(feed.newest(channel(1).id.0).await.unwrap().newest, 1);
    assert_eq!(offsets_of(&kept), [1, 2, 3]);
    drop(sink);
    assert!(
        feed.lease("ledger", channel(1).id.0, PageSize { events: 9, bytes: 9 }, VALID).await.is_err(),
        "the sink has ended"
    );
    drop(feed);
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 2, "only the two databases are left");
    place.assert_sound();
}

/// Replaces the file by a prepared copy, several times, while a client reads. Delivers an event after each time.
async fn replaced_while_read(replace: impl Fn(&std::path::Path, &std::path::Path)) {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    deliver(&sink, &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    place.until_log_is_empty().await;
    let [kept, next] = ["kept.db", "next.db"].map(|name| place.directory.path().join(name));
    std::fs::copy(&place.settings.path, &kept).unwrap();
    for round in 0..4 {
        std::fs::copy(&kept, &next).unwrap();
        place.until_log_is_empty().await;
        // The writer remembers the state of the files after it has emptied the log.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let reader = feed.clone();
        let reading = tokio::spawn(async move {
            loop {
                // Fails while the file is replaced.
                drop(reader.newest(channel(1).id.0).await);
                tokio::task::yield_now().await;
            }
        });
        tokio::time::sleep(Duration::from_millis(10)).await;
        replace(&next, &place.settings.path);
        let (channel, message) = (channel(1), [record(&channel(1), 2)]);
        let delivered = deliver_after(&sink, &channel, Some(offset(1)), &message).await;
        delivered.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert_eq!(feed.newest(channel.id.0).await.unwrap().newest, 2, "round {round}");
        reading.abort();
    }
    place.assert_sound();
}

#[tokio::test]
async fn a_file_is_replaced_by_a_rename_while_a_client_reads() {
    replaced_while_read(|next, path| std::fs::rename(next, path).unwrap()).await;
}

#[tokio::test]
async fn a_file_is_overwritten_while_a_client_reads() {
    let copy = |next: &std::path::Path, path: &std::path::Path| {
        std::fs::copy(next, path).unwrap();
    };
    replaced_while_read(copy).await;
}

#[tokio::test]
async fn a_read_of_a_moved_database_first_closes_the_writer() {
    let place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &[record(&channel(1), 1)]).await.unwrap();
    place.until_log_is_empty().await;
    let [copy, moved] = ["copy.db", "moved.db"].map(|name| place.directory.path().join(name));
    std::fs::copy(&place.settings.path, &copy).unwrap();
    // These rows are only in the log.
    deliver(&sink, &channel(1), &records(&channel(1), 2..4)).await.unwrap();
    std::fs::rename(&place.settings.path, &moved).unwrap();
    std::fs::rename(&copy, &place.settings.path).unwrap();
    assert_eq!(feed(&sink).newest(channel(1).id.0).await.unwrap().newest, 1);
    assert_eq!(offsets_of(&moved), [1, 2, 3], "the log was written into the moved file");
}

#[test]
fn canceled_reads_use_one_thread() {
    let place = place();
    let sink = place.sink();
    let feed = feed(&sink);
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(3).build().unwrap();
    // As if the disk did not answer: a read waits for this lock.
    let hanging = sink.writing.reader.close();
    runtime.block_on(async {
        for _ in 0..5 {
            let canceled = timeout(Duration::from_millis(10), feed.newest(channel(1).id.0)).await;
            assert!(canceled.is_err(), "{canceled:?}");
        }
        timeout(Duration::from_secs(10), spawn_blocking(|| ())).await.expect("a thread is free").unwrap();
    });
    drop(hanging);
    assert_eq!(runtime.block_on(feed.newest(channel(1).id.0)).unwrap(), FeedPosition::default());
}

#[tokio::test]
async fn a_lease_that_nothing_awaits_any_more_is_not_taken() {
    let place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..4)).await.unwrap();
    let store = sink.feed.clone().unwrap();
    let of = ConsumerRef { consumer: "ledger", channel: channel(1).id.0 };
    let new = NewLease { after: 0, through: 2, lease: "abandoned".to_owned(), valid: VALID };
    let (release, released) = mpsc::channel();
    let busy = sink.writing.writer().unwrap().use_database(move |_| {
        released.recv().unwrap();
        Ok(())
    });
    let abandon = async {
        for _ in 0..3 {
            assert!(store.take(of, &new).now_or_never().is_none(), "the writer is busy");
        }
        release.send(()).unwrap();
    };
    let (busy, ()) = tokio::join!(busy, abandon);
    busy.unwrap();
    assert_eq!(events(lease(&feed(&sink), 9, VALID).await).1, [1, 2, 3]);
}

#[tokio::test]
async fn a_channel_is_not_empty_while_its_database_cannot_be_read() {
    let place = place();
    let sink = place.sink();
    let reader = feed(&sink);
    assert_eq!(reader.newest(channel(1).id.0).await.unwrap().newest, 0, "the database does not exist yet");
    deliver(&sink, &channel(1), &records(&channel(1), 1..4)).await.unwrap();
    assert_eq!(reader.newest(channel(1).id.0).await.unwrap().newest, 3);
    let kept = place.directory.path().join("kept.db");
    std::fs::rename(&place.settings.path, &kept).unwrap();
    let absent = reader.page(channel(1).id.0, 3, NINE).await;
    assert!(matches!(absent, Err(FeedError::Table(_))), "{absent:?}");
    std::fs::rename(&kept, &place.settings.path).unwrap();
    assert_eq!(reader.newest(channel(1).id.0).await.unwrap().newest, 3);
    drop(sink);

    // A backup that a version without a feed has written.
    place.reader().execute_batch("drop table order_consumers").unwrap();
    let sink = place.sink();
    let reader = feed(&sink);
    let incomplete = reader.newest(channel(1).id.0).await;
    assert!(matches!(incomplete, Err(FeedError::Table(_))), "{incomplete:?}");
    deliver(&sink, &channel(1), &records(&channel(1), [4])).await.unwrap();
    assert_eq!(reader.newest(channel(1).id.0).await.unwrap().newest, 4);
}

fn kept(channel: ConsumedChannel) -> FeedConsumer {
    FeedConsumer { consumer: "ledger".to_owned(), channel }
}

#[tokio::test]
async fn keep_for_waits_for_the_consumers_of_a_channel_that_is_not_added_yet() {
    let mut place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..4)).await.unwrap();
    deliver(&sink, &channel(2), &records(&channel(2), 1..4)).await.unwrap();
    feed(&sink).set_cursor("ledger", channel(1).id.0, 1).await.unwrap();
    drop(sink);
    place.reader().execute_batch("update \"order\" set delivered = '2020-01-01T00:00:00.000Z'").unwrap();
    place.settings.keep_for = Some(Duration::from_secs(60 * 60));
    place.settings.keep_for_consumers = vec![kept(ConsumedChannel::Named(channel(1).name.to_string()))];
    let sink = place.sink();
    deliver(&sink, &channel(2), &records(&channel(2), [4])).await.unwrap();
    assert_eq!(until_at_most(&place, 6).await, 6, "one row is committed, and the others follow it");
    feed(&sink).set_cursor("ledger", channel(1).id.0, 3).await.unwrap();
    drop(sink);
    let sink = place.sink();
    deliver(&sink, &channel(2), &records(&channel(2), [5])).await.unwrap();
    assert_eq!(until_at_most(&place, 2).await, 2, "only rows of the consumer's channel are kept");
}

#[tokio::test]
async fn keep_for_waits_for_the_named_consumers_and_keep_size_does_not() {
    let mut place = place();
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), 1..6)).await.unwrap();
    feed(&sink).set_cursor("ledger", channel(1).id.0, 2).await.unwrap();
    drop(sink);
    place.reader().execute_batch("update \"order\" set delivered = '2020-01-01T00:00:00.000Z'").unwrap();
    place.settings.keep_for = Some(Duration::from_secs(60 * 60));
    place.settings.keep_for_consumers = vec![kept(ConsumedChannel::Known(channel(1).id))];
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [6])).await.unwrap();
    assert_eq!(until_at_most(&place, 4).await, 4);
    assert_eq!(place.offsets(), [3, 4, 5, 6]);
    feed(&sink).set_cursor("ledger", channel(1).id.0, 6).await.unwrap();
    drop(sink);
    let sink = place.sink();
    deliver(&sink, &channel(1), &records(&channel(1), [7])).await.unwrap();
    assert_eq!(until_at_most(&place, 2).await, 2, "rows that are not old are kept");
    assert_eq!(place.offsets(), [6, 7]);
    feed(&sink).set_cursor("ledger", channel(1).id.0, 0).await.unwrap();
    drop(sink);

    place.settings.keep_size = Some(1 << 20);
    let sink = place.sink();
    for number in 0..8 {
        deliver(&sink, &channel(1), &records(&channel(1), 500 * number + 10..500 * number + 510)).await.unwrap();
    }
    until_at_most(&place, 2_500).await;
}
