//! A table that refuses a row may refuse only this event, or every event. Only in the first case does the event become a
//! dead letter.

use serde_json::{Value, json};

use super::failures::{lane, until_says};
use crate::support::{Daemon, Database, Scripted, Setup, Tables, programs, serving, signed};

/// A service with these events. The tables exist and are empty, and refused events soon become dead letters.
async fn prepared(contents: &[&str]) -> Option<(Scripted, Setup, Tables)> {
    let database = Database::new().await?;
    if !programs(&["psql", "python3"]) {
        return None;
    }
    let last = i64::try_from(contents.len()).unwrap();
    let events = contents.iter().zip(1..).map(|(content, offset)| signed(offset, content)).collect();
    let (service, setup) = serving(events).await;
    let (mut setup, tables) = setup.with_tables(database);
    // Deliver one event to create the tables, and delete the state afterwards.
    setup.set("channels.c0.start", last);
    let mut daemon = setup.start();
    tables.until(&mut daemon, 1).await;
    daemon.stop().await;
    std::fs::remove_dir_all(setup.path("state")).unwrap();
    tables.change("delete from events_progress; delete from events;").await;
    setup.set("channels.c0.start", "earliest");
    for sink in ["warehouse", "local"] {
        setup.set(&format!("sinks.{sink}.give_up_after"), "1ms");
    }
    Some((service, setup, tables))
}

/// A trigger in both databases that refuses rows.
fn refuse(tables: &Tables, condition: &str) {
    tables.database.psql(&format!(
        "create function public.no() returns trigger language plpgsql as $$ begin \
         raise exception 'refused by the operator' using errcode = 'ZX001'; end $$; \
         create trigger no before insert on events for each row when ({condition}) execute function public.no()"
    ));
    let trigger = format!(
        "create trigger no before insert on events when {condition} begin \
         select raise(abort, 'refused by the operator'); end"
    );
    rusqlite::Connection::open(&tables.file).unwrap().execute_batch(&trigger).unwrap();
}

/// Removes the trigger in both databases.
fn allow(tables: &Tables) {
    tables.database.psql("drop trigger no on events");
    rusqlite::Connection::open(&tables.file).unwrap().execute_batch("drop trigger no").unwrap();
}

/// Waits until a sink has refused this many offers in a row, and returns the state of its lane.
async fn until_refused(daemon: &mut Daemon, setup: &Setup, sink: &str, times: u64) -> Value {
    let refused = async || lane(setup, sink).await;
    super::until(daemon, "offers are refused", async || refused().await["error"]["times"].as_u64() >= Some(times))
        .await;
    refused().await
}

async fn dead_letters(setup: &Setup, sink: &str) -> Vec<Value> {
    setup.tell(&["dead-letters", "list", "--json", "c0", "--sink", sink]).await.each("offset")
}

#[tokio::test]
async fn a_table_that_refuses_every_event_blocks_its_lane_and_makes_no_dead_letter() {
    let content = r#"{"name":"n"}"#;
    // One event that waits alone, and several.
    for events in [1, 5] {
        let Some((_service, setup, tables)) = prepared(&vec![content; events]).await else { return };
        refuse(&tables, "new.event_offset > 0");
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        for sink in ["warehouse", "local"] {
            until_says(&setup, &mut daemon, sink, "every event is refused").await;
            let lane = until_refused(&mut daemon, &setup, sink, 3).await;
            assert_eq!(
                (&lane["state"], &lane["error"]["needs_attention"]),
                (&json!("blocked"), &json!(true)),
                "{lane}"
            );
            assert!(lane["error"]["message"].as_str().unwrap().contains("refused by the operator"), "{lane}");
            assert!(dead_letters(&setup, sink).await.is_empty(), "{sink}");
        }
        assert_eq!(tables.rows().await, [0, 0], "no other content stays in the table");
        allow(&tables);
        tables.until(&mut daemon, events).await;
        daemon.stop().await;
        let last = i64::try_from(events).unwrap();
        tables.assert_each_once(&(1..=last).collect::<Vec<_>>(), last);
    }
}

#[tokio::test]
async fn an_event_that_a_trigger_refuses_becomes_a_dead_letter_wherever_it_is() {
    let [bad, good] = [r#"{"name":"bad"}"#, r#"{"name":"good"}"#];
    for (contents, refused) in [
        (vec![bad], vec![1_i64]),
        (vec![bad, good, good], vec![1]),
        (vec![good, good, bad], vec![3]),
        (vec![bad, bad, good, bad, good], vec![1, 2, 4]),
    ] {
        let Some((_service, setup, tables)) = prepared(&contents).await else { return };
        refuse(&tables, "new.name = 'bad'");
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        tables.until(&mut daemon, contents.len() - refused.len()).await;
        for sink in ["warehouse", "local"] {
            super::until(&mut daemon, "the refused events are dead letters", async || {
                dead_letters(&setup, sink).await == refused
            })
            .await;
        }
        daemon.stop().await;
        let offsets = (1_i64..).take(contents.len()).filter(|offset| !refused.contains(offset));
        let delivered: Vec<_> = offsets.map(|offset| offset.to_string()).collect();
        for found in tables.both("select event_offset from events order by event_offset") {
            assert_eq!(found, delivered);
        }
    }
}

#[tokio::test]
async fn an_event_that_a_trigger_suppresses_is_not_delivered_and_leaves_no_gap_in_the_positions() {
    let [bad, good] = [r#"{"name":"bad"}"#, r#"{"name":"good"}"#];
    let Some((_service, setup, tables)) = prepared(&[good, bad, good, good, bad]).await else { return };
    tables.database.psql(
        "create function public.no() returns trigger language plpgsql as $$ begin return null; end $$; \
         create trigger no before insert on events for each row when (new.name = 'bad') execute function public.no()",
    );
    let suppress = "create trigger no before insert on events when new.name = 'bad' begin select raise(ignore); end";
    rusqlite::Connection::open(&tables.file).unwrap().execute_batch(suppress).unwrap();
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    for sink in ["warehouse", "local"] {
        super::until(&mut daemon, "the suppressed events are dead letters", async || {
            dead_letters(&setup, sink).await == [2, 5]
        })
        .await;
        let reasons = setup.tell(&["dead-letters", "list", "--json", "c0", "--sink", sink]).await.each("reason");
        assert!(reasons[0].as_str().unwrap().contains("suppresses rows without an error"), "{reasons:?}");
    }
    daemon.stop().await;
    for found in tables.both("select event_offset from events order by event_offset") {
        assert_eq!(found, ["1", "3", "4"]);
    }
    for found in tables.both("select position from events order by event_offset") {
        assert_eq!(found, ["1", "2", "3"]);
    }
}

/// Changes of an operator that make the PostgreSQL table refuse every event, and the changes that undo them.
const REFUSE_ALL: [(&str, &str); 5] = [
    (
        "create table parts (like events including defaults including identity) partition by list (channel_id); drop table events; \
         alter table parts rename to events",
        "create table parts_of_all partition of events default",
    ),
    (
        "alter table events add constraint closed check (event_offset < 0) not valid",
        "alter table events drop constraint closed",
    ),
    (
        "create function public.no() returns trigger language plpgsql as $$ begin \
         insert into public.nowhere values (1); return new; end $$; \
         create trigger no before insert on events for each row execute function public.no()",
        "drop trigger no on events",
    ),
    (
        "create function public.no() returns trigger language plpgsql as $$ begin return null; end $$; \
         create trigger no before insert on events for each row execute function public.no()",
        "drop trigger no on events",
    ),
    (
        "create table public.known (name text primary key); \
         alter table events add column mine text default 'x' references public.known deferrable initially deferred",
        "alter table events drop column mine",
    ),
];

#[tokio::test]
async fn a_postgresql_table_that_refuses_every_event_for_any_reason_makes_no_dead_letter() {
    for (change, mend) in REFUSE_ALL {
        let Some((_service, setup, tables)) = prepared(&[r#"{"name":"n"}"#; 3]).await else { return };
        tables.database.psql(change);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        until_says(&setup, &mut daemon, "warehouse", "every event is refused").await;
        until_refused(&mut daemon, &setup, "warehouse", 3).await;
        assert!(dead_letters(&setup, "warehouse").await.is_empty(), "{change}");
        tables.database.psql(mend);
        tables.until(&mut daemon, 3).await;
        daemon.stop().await;
        tables.assert_each_once(&[1, 2, 3], 3);
    }
}

#[tokio::test]
async fn an_event_with_an_unknown_reference_becomes_a_dead_letter_alone() {
    let [known, unknown] = [r#"{"name":"known"}"#, r#"{"name":"unknown"}"#];
    let Some((_service, setup, tables)) = prepared(&[known, unknown, known]).await else { return };
    // Made-up content is refused too. Only other events, or a copy of one, show that the table accepts some content.
    tables.database.psql(
        "create table public.names (name text primary key); insert into public.names values ('known'); \
         alter table events add constraint known foreign key (name) references public.names",
    );
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    super::until(&mut daemon, "the event is a dead letter", async || dead_letters(&setup, "warehouse").await == [2])
        .await;
    super::until(&mut daemon, "its neighbors are delivered", async || tables.rows().await == [2, 3]).await;
    daemon.stop().await;
    assert_eq!(tables.database.psql("select event_offset from events order by event_offset"), ["1", "3"]);
}
