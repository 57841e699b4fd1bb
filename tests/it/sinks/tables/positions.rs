//! The sink `postgres` without a daemon. Every statement is compared with the position of the lane, and an event is
//! identified by its offset and id.

use std::collections::BTreeSet;
use std::sync::Arc;

use proof::event::{ChannelId, EventId, EventKey, Offset, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier};
use record::{ChannelRef, Lines, Message, Record, Shape};
use sink::{
    Confirmed, Delivery, LaneRef, Position, PostgresSettings, Recorded, Search, Sink, SinkError, Undelivered, postgres,
};
use uuid::Uuid;

use crate::support::{Database, Line, Relay, Server, programs, skip};

mod feed;

/// Replaces the key of the table with the key of older versions.
const OLD_KEY: &str = "drop index events_identity; alter table events add primary key (channel_id, event_offset)";

fn lane() -> LaneRef {
    LaneRef { channel: ChannelRef { name: "c0".into(), id: ChannelId(Uuid::from_u128(7)) }, sink: "warehouse".into() }
}

fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap()
}

fn at(number: i64) -> Position {
    Position::At(Some(offset(number)))
}

/// A notice at this offset, with or without an id.
fn event(number: i64, id: Option<u128>) -> Message {
    let id = id.map_or_else(String::new, |id| format!(r#""event_id":"{}","#, Uuid::from_u128(id)));
    let json = format!(r#"{{{id}"headers":{{"type":"wallet.status","offset":{number},"proofs":[]}},"payload":{{}}}}"#);
    let signers = SignerSet::new(vec![Address([1; 20])], 1).unwrap();
    match Verifier::new(signers, Address([2; 20])).verify(RawEvent::locate(json.into()).unwrap()) {
        Verdict::Unsigned(unsigned) => {
            let record = Record::unsigned(&lane().channel, &unsigned, &mut Lines::default());
            Message::new(&Arc::new(record), &Shape::default())
        }
        other => panic!("{}", other.name()),
    }
}

fn events(offsets: impl IntoIterator<Item = i64>) -> Vec<Message> {
    offsets.into_iter().map(|number| event(number, Some(number.unsigned_abs().into()))).collect()
}

/// Three events at one offset. The last one has no id.
fn three_at(number: i64) -> [Message; 3] {
    [event(number, Some(1)), event(number, Some(2)), event(number, None)]
}

fn settings(url: &str, create: bool) -> PostgresSettings {
    PostgresSettings {
        server: url.parse().unwrap(),
        schema: "public".to_owned(),
        table: "events".to_owned(),
        create,
        operations: false,
        search: Search::None,
        notify: None,
        feed: false,
    }
}

fn sink_at(url: &str) -> Arc<dyn Sink> {
    postgres("warehouse", settings(url, true)).unwrap()
}

/// A new database and a sink for it.
async fn database() -> Option<(Database, Arc<dyn Sink>)> {
    let database = Database::new().await?;
    if !programs(&["psql"]) {
        return None;
    }
    let sink = sink_at(&database.url());
    Some((database, sink))
}

/// The recorded state of a lane whose position was never confirmed.
fn recorded(through: Option<i64>) -> Recorded {
    let through = through.map(offset);
    Recorded {
        lane: lane(),
        epoch: 1,
        through,
        pending: BTreeSet::new(),
        replayed: BTreeSet::new(),
        confirmed: None,
        late: Vec::new(),
    }
}

/// The recorded state of a lane that has delivered up to `through`.
fn confirmed(through: i64) -> Recorded {
    let confirmed = Confirmed { position: Some(offset(through)), last: None };
    Recorded { confirmed: Some(confirmed), ..recorded(Some(through)) }
}

async fn resumed(sink: &Arc<dyn Sink>, recorded: &Recorded) -> Position {
    sink.resume(recorded).await.unwrap().position
}

async fn deliver(sink: &Arc<dyn Sink>, after: Option<i64>, messages: &[Message]) -> Result<(), Undelivered> {
    let (lane, after, through) = (lane(), after.map(offset), messages.last().unwrap().offset());
    sink.deliver(&Delivery { lane: &lane, epoch: 1, after, through, messages }).await
}

/// Creates the tables and delivers events 1 to 7.
async fn seven(sink: &Arc<dyn Sink>) {
    assert_eq!(resumed(sink, &recorded(None)).await, Position::At(None));
    deliver(sink, None, &events(1..=3)).await.unwrap();
    deliver(sink, Some(3), &events(4..=7)).await.unwrap();
}

fn displaced(answer: Result<(), Undelivered>) -> String {
    match answer {
        Err(Undelivered { error: SinkError::Displaced(why), delivered: 0, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn offsets(database: &Database) -> Vec<String> {
    database.psql("select event_offset from events order by event_offset, event_id")
}

fn numbers(offsets: impl IntoIterator<Item = i64>) -> Vec<String> {
    offsets.into_iter().map(|number| number.to_string()).collect()
}

/// Restores the tables to the state after event 3.
fn restore(database: &Database) {
    database.psql("delete from events where event_offset > 3; update events_progress set through = 3");
}

/// The unique indexes of the table that identify events.
fn keys(database: &Database) -> Vec<String> {
    database.psql(
        "select indexrelid::regclass from pg_index where indrelid = 'events'::regclass and indisunique \
         and indexrelid::regclass::text <> 'events_position'",
    )
}

#[tokio::test]
async fn a_lane_creates_the_tables_position_or_adopts_the_existing_one() {
    let Some((database, sink)) = database().await else { return };
    assert!(matches!(sink.position(&lane()).await.unwrap(), Position::Missing(_)));
    assert_eq!(database.psql("select to_regclass('events') is null"), ["t"], "reading a position creates no table");
    for through in [Some(9), Some(4), None] {
        let position = Position::At(through.map(offset));
        assert_eq!(resumed(&sink, &recorded(through)).await, position);
        assert_eq!(sink.position(&lane()).await.unwrap(), position);
    }
    deliver(&sink, None, &events(1..=3)).await.unwrap();
    for through in [9, 2] {
        assert_eq!(resumed(&sink, &Recorded { epoch: 7, ..confirmed(through) }).await, at(3));
    }
    assert_eq!(database.psql("select through, epoch from events_progress"), ["3|7"]);
    let older = sink.resume(&confirmed(3)).await.unwrap_err();
    assert!(matches!(older, SinkError::Overtaken(_)), "{older:?}");
}

#[tokio::test]
async fn a_restored_table_is_noticed_at_the_start_and_by_the_next_statement() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    restore(&database);
    assert_eq!(resumed(&sink_at(&database.url()), &confirmed(7)).await, at(3));
    let why = displaced(deliver(&sink, Some(7), &events([8])).await);
    assert!(why.contains("public.events_progress is at offset 3, expected at offset 7"), "{why}");
    assert_eq!(offsets(&database), numbers(1..=3));
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(3));
    deliver(&sink, Some(3), &events(4..=8)).await.unwrap();
    assert_eq!(offsets(&database), numbers(1..=8));
}

#[tokio::test]
async fn a_missing_progress_row_or_table_is_reported_and_not_recreated() {
    let Some((database, sink)) = database().await else { return };
    for change in ["delete from events_progress", "drop table events_progress", "drop table events"] {
        seven(&sink).await;
        database.psql(change);
        let refused = deliver(&sink, Some(7), &events([8])).await.unwrap_err();
        assert!(refused.delivered == 0 && refused.error.kind() != "refused", "{change}: {refused:?}");
        let missing = Position::Missing("table public.events_progress has no row for this lane".to_owned());
        assert_eq!(resumed(&sink, &confirmed(7)).await, missing, "{change}");
        let why = displaced(deliver(&sink, Some(7), &events([8])).await);
        assert!(why.contains("has no row for this lane, expected at offset 7"), "{change}: {why}");
        assert_eq!(sink.position(&lane()).await.unwrap(), missing, "{change}");
        assert_eq!(database.psql("select count(*) from events_progress"), ["0"], "{change}");
        assert_eq!(database.psql("select count(*) from events where event_offset = 8"), ["0"], "{change}");
    }
}

#[tokio::test]
async fn two_events_at_one_offset_are_each_stored_once() {
    let Some((database, sink)) = database().await else { return };
    resumed(&sink, &recorded(None)).await;
    deliver(&sink, None, &three_at(5)).await.unwrap();
    deliver(&sink, Some(5), &three_at(5)).await.unwrap();
    assert_eq!(offsets(&database), ["5", "5", "5"]);
    let [first, other, without_id] = three_at(5).map(|message| message.event_key());
    let absent = EventKey { id: Some(EventId(Uuid::from_u128(3))), ..first };
    let pending = BTreeSet::from([other, without_id, absent]);
    let held = sink.resume(&Recorded { pending, ..confirmed(5) }).await.unwrap().held;
    assert_eq!(BTreeSet::from_iter(held), [other, without_id].into());
    // A constraint of the operator still refuses rows.
    database.psql("create unique index mine on events (type) where event_offset > 5");
    let refused = deliver(&sink, Some(5), &events(6..=7)).await.unwrap_err();
    assert!(refused.delivered == 1 && matches!(refused.error, SinkError::Refused { .. }), "{refused:?}");
    assert_eq!(sink.position(&lane()).await.unwrap(), at(6));
}

#[tokio::test]
async fn a_refused_event_stops_later_ones_even_if_the_table_is_ahead() {
    let Some((database, sink)) = database().await else { return };
    resumed(&sink, &recorded(Some(900))).await;
    database.psql("alter table events add constraint mine check (event_offset <> 123)");
    let refused = deliver(&sink, Some(900), &events(1..=600)).await.unwrap_err();
    assert_eq!(refused.delivered, 122, "{refused:?}");
    assert_eq!(database.number("select max(event_offset) from events").await, 122);
    database.psql("alter table events drop constraint mine");
    deliver(&sink, Some(900), &events(1..=600)).await.unwrap();
    assert_eq!(offsets(&database), numbers(1..=600));
    assert_eq!(sink.position(&lane()).await.unwrap(), at(900));
    deliver(&sink, Some(900), &events(601..=1_500)).await.unwrap();
    assert_eq!(sink.position(&lane()).await.unwrap(), at(1_500));
}

#[tokio::test]
async fn a_table_of_an_older_version_gets_the_new_key_and_keeps_its_rows() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    database.psql(OLD_KEY);
    // Both keys exist if a migration stops between its two transactions, or if an operator has already created the new
    // key.
    for has_both in [false, true] {
        if has_both {
            database.psql("alter table events add constraint old unique (channel_id, event_offset)");
        }
        let sink = sink_at(&database.url());
        let said = sink.probe().await.unwrap();
        assert!(said.contains("this SQL will be run: ") && said.contains(" drop constraint if exists "), "{said}");
        assert_eq!(resumed(&sink, &confirmed(7)).await, at(7));
        assert_eq!(keys(&database), ["events_identity"]);
        let said = sink.probe().await.unwrap();
        assert!(said.contains("table public.events is there") && !said.contains("will be run"), "{said}");
    }
    deliver(&sink_at(&database.url()), Some(7), &three_at(7)).await.unwrap();
    assert_eq!(offsets(&database), numbers([1, 2, 3, 4, 5, 6, 7, 7, 7, 7]));
}

#[tokio::test]
async fn without_permission_to_migrate_a_table_the_sql_is_printed() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    database.psql(OLD_KEY);
    let sink = postgres("warehouse", settings(&database.url(), false)).unwrap();
    for refused in [sink.probe().await.map(drop), sink.resume(&confirmed(7)).await.map(drop)] {
        let said = refused.unwrap_err().to_string();
        let (why, sql) = said.split_once(" run: ").unwrap_or_else(|| panic!("{said}"));
        assert!(why.contains("create is false"), "{said}");
        assert_eq!(keys(&database), ["events_pkey"]);
        database.psql(sql);
        database.psql(sql);
        assert_eq!(keys(&database), ["events_identity"]);
        database.psql(OLD_KEY);
    }
    // An unfinished index with the expected name.
    database.psql("truncate events; create unique index events_identity on events (channel_id)");
    let said = sink.probe().await.unwrap_err().to_string();
    database.psql(said.split_once(" run: ").unwrap().1);
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(7));
    deliver(&sink, Some(7), &three_at(8)).await.unwrap();
    assert_eq!(offsets(&database), ["8", "8", "8"]);
}

#[tokio::test]
async fn a_reader_delays_the_migration_and_the_migration_blocks_no_reader() {
    let Some((database, sink)) = database().await else { return };
    seven(&sink).await;
    database.psql(OLD_KEY);
    let reader = database.server.client(&database.name).await;
    reader.batch_execute("begin; select count(*) from events").await.unwrap();
    let sink = sink_at(&database.url());
    let refused = sink.resume(&confirmed(7)).await.unwrap_err();
    assert!(refused.kind() == "unavailable" && refused.to_string().contains("locked by another session"), "{refused}");
    assert_eq!(keys(&database).len(), 2, "the new key exists before the old one is dropped");
    reader.batch_execute("rollback").await.unwrap();
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(7));
    assert_eq!(keys(&database), ["events_identity"]);
}

#[tokio::test]
async fn a_promoted_standby_without_the_last_deliveries_is_noticed_by_the_next_statement() {
    let Some(primary) = Server::start() else { return skip("PostgreSQL") };
    if !programs(&["psql"]) {
        return;
    }
    let replication = Relay::before(primary.socket()).await;
    let primary = Arc::new(primary);
    let database = Database::on(primary.clone()).await;
    let (copied, relay) = (primary.clone(), replication.address());
    let standby = Arc::new(tokio::task::spawn_blocking(move || copied.standby(relay)).await.unwrap());
    let relay = Relay::before(primary.socket()).await;
    let sink = sink_at(&database.url_by(relay.address()));
    resumed(&sink, &recorded(None)).await;
    deliver(&sink, None, &events(1..=3)).await.unwrap();
    primary.is_followed_by(&standby).await;

    replication.becomes(Line::Silent);
    deliver(&sink, Some(3), &events(4..=7)).await.unwrap();
    drop(replication);
    primary.kill();
    let database = database.also_on(&standby);
    standby.promote().await;
    relay.leads_to(standby.socket());
    relay.cut();
    let why = loop {
        match deliver(&sink, Some(7), &events([8])).await {
            // The sink still has a connection to the killed server.
            Err(Undelivered { error: SinkError::Unavailable { .. }, .. }) => {}
            other => break displaced(other),
        }
    };
    assert!(why.contains("is at offset 3, expected at offset 7"), "{why}");
    assert_eq!(offsets(&database), numbers(1..=3));
    assert_eq!(resumed(&sink, &confirmed(7)).await, at(3));
    deliver(&sink, Some(3), &events(4..=8)).await.unwrap();
    assert_eq!(offsets(&database), numbers(1..=8));
}
