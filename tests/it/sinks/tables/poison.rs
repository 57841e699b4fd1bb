//! Contents that a database may refuse.

use std::sync::Arc;

use super::NEVER;
use super::failures::lane;
use crate::support::{Daemon, Database, Delivered, Server, Setup, Tables, programs, serving, signed, skip};

/// Contents, and whether `jsonb` accepts each of them.
fn contents() -> Vec<(String, bool)> {
    let long = "x".repeat(300_000);
    [
        (r#"{"name":"Plain","n":1.50}"#.to_owned(), true),
        (r#"{"name":"Nul\u0000","text":"a\u0000b"}"#.to_owned(), false),
        (r#"{"name":"Half","text":"\ud800"}"#.to_owned(), false),
        (r#"{"name":"Huge","n":1e400000}"#.to_owned(), false),
        (r#"{"name":"Deep","n":1e-20000}"#.to_owned(), false),
        (r#"{"name":"Fits","n":1e131000,"t":"\\u0000"}"#.to_owned(), true),
        (r#"{"name":"Twice","a":1,"a":2}"#.to_owned(), true),
        (r#"{"name":"Quotes","t":"'; drop table events; -- \" \\ |"}"#.to_owned(), true),
        (format!(r#"{{"name":"{}","t":"{long}"}}"#, "y".repeat(5_000)), true),
        (r#"{"name":"Ωμέγα 🦀","service":"\u0000"}"#.to_owned(), false),
        // The databases of the tests have the encoding SQL_ASCII.
        (r#"{"name":"Escaped \u00e9"}"#.to_owned(), false),
        (r#"["no object"]"#.to_owned(), true),
        (r#"{"name":"Last"}"#.to_owned(), true),
    ]
    .into()
}

#[tokio::test]
async fn json_that_jsonb_refuses_leaves_its_column_null_and_loses_nothing() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let contents = contents();
    let events = contents.iter().zip(1..).map(|((content, _), offset)| signed(offset, content)).collect();
    let (_service, setup) = serving(events).await;
    let (mut setup, tables) = setup.with_tables(database);
    setup.set("sinks.warehouse.search", "words");
    setup.set("sinks.local.search", "trigrams");
    setup.set("channels.c0.sinks", vec!["warehouse", "local", "file"]);
    setup.set("sinks.warehouse.give_up_after", format!("{}s", NEVER.as_secs() / 10));
    assert_eq!(tables.database.psql("show server_encoding"), ["SQL_ASCII"]);
    let mut daemon = setup.start();
    tables.until(&mut daemon, contents.len()).await;
    daemon.until("the file has the events too", |_| setup.lines() == contents.len()).await;
    let log = daemon.stop().await;
    assert!(log.lines("sink refused: its events wait and will be offered again").is_empty(), "{}", log.0);

    let lines = Delivered::read(&setup.path("events.jsonl"));
    for (which, taken) in [
        tables.database.psql("select record from events order by event_offset"),
        crate::support::sqlite(&tables.file, "select record from events order by event_offset"),
    ]
    .into_iter()
    .enumerate()
    {
        for (record, line) in taken.iter().zip(&lines) {
            let record = Delivered::parse(record);
            let same = |one: &Delivered| {
                (one.offset, one.decoded.as_ref().map(|decoded| decoded.get().to_owned()), one.event.get().to_owned())
            };
            assert_eq!(same(&record), same(line), "{which}");
        }
        assert_eq!(taken.len(), contents.len());
    }
    let kept = tables.database.psql("select decoded is not null from events order by event_offset");
    let expected: Vec<_> = contents.iter().map(|(_, is_taken)| if *is_taken { "t" } else { "f" }).collect();
    assert_eq!(kept, expected);
    let kept = crate::support::sqlite(&tables.file, "select count(*) from events where decoded is null");
    assert_eq!(kept, ["1"], "SQLite accepts any JSON; a record leaves out half of a surrogate pair");
    let [one, other] = tables.both("select name from events where event_offset in (2, 10) order by event_offset");
    assert_eq!(one, other);
    assert_eq!(one[0], "Nul\\u0000");
}

/// The number of batches in the queue of a sink, from the status.
async fn queued(setup: &Setup, sink: &str) -> u64 {
    lane(setup, sink).await["queued_batches"].as_u64().unwrap_or_default()
}

/// A service with 300 events. The tables exist and contain the last event.
async fn three_hundred(database: Database) -> (impl Sized, Setup, Tables) {
    let events = (1..=300).map(|offset| signed(offset, &format!(r#"{{"name":"n{offset}"}}"#))).collect();
    let (service, setup) = serving(events).await;
    let (mut setup, tables) = setup.with_tables(database);
    setup.set("channels.c0.start", 300);
    let mut daemon = setup.start();
    tables.until(&mut daemon, 1).await;
    daemon.stop().await;
    std::fs::remove_dir_all(setup.path("state")).unwrap();
    // With a stored position, the channel would start above that event.
    tables.database.psql("delete from events_progress");
    sqlite_change(&tables.file, "delete from events_progress");
    setup.set("channels.c0.start", "earliest");
    (service, setup, tables)
}

fn sqlite_change(file: &std::path::Path, statement: &str) {
    rusqlite::Connection::open(file).unwrap().execute_batch(statement).unwrap();
}

/// Adds a trigger to the PostgreSQL table that records the offset `before` or `after` each insertion.
fn note_rows(tables: &Tables, when: &str) {
    tables.database.psql(&format!(
        "create table public.written (number bigserial, event_offset bigint); \
         create function public.note() returns trigger language plpgsql as $$ begin \
         insert into public.written (event_offset) values (new.event_offset); return new; end $$; \
         create trigger note {when} insert on public.events for each row execute function public.note()",
    ));
}

/// The recorded offsets, in the order of insertion.
fn noted_rows(tables: &Tables) -> Vec<String> {
    tables.database.psql("select event_offset from public.written order by number")
}

/// Starts the daemon and lets the lane start only when both pages are queued. The pages become one delivery of two
/// statements.
async fn start_with_two_pages(setup: &Setup, tables: &Tables) -> Daemon {
    let client = tables.database.server.client(&tables.database.name).await;
    client.batch_execute("begin; lock table events_progress in share row exclusive mode").await.unwrap();
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    super::until(&mut daemon, "both pages wait", async || queued(setup, "warehouse").await == 2).await;
    client.batch_execute("rollback").await.unwrap();
    daemon
}

#[tokio::test]
async fn delivered_rows_survive_a_crash_of_the_server() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let database = Database::on(Arc::new(server)).await;
    let (_service, setup, tables) = three_hundred(database).await;
    // Refuses the first event of the second statement.
    tables.database.psql("alter table events add constraint mine check (name <> 'n201')");
    // Data that need not be on the disk yet is written as late as possible, so that the kill loses it.
    for setting in ["wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'"] {
        tables.database.psql(&format!("alter system set {setting}"));
    }
    tables.database.psql("select pg_reload_conf()");
    let mut daemon = start_with_two_pages(&setup, &tables).await;
    for recorded in [200, 300] {
        super::until(&mut daemon, "the events are recorded", async || {
            lane(&setup, "warehouse").await["cursor"] == recorded
        })
        .await;
        tables.database.server.kill();
        tables.database.server.run();
        let there =
            tables.database.number(&format!("select count(*) from events where event_offset <= {recorded}")).await;
        assert_eq!(there, recorded);
        tables.database.psql("alter table events drop constraint if exists mine");
    }
    daemon.stop().await;
    tables.assert_each_once(&(1..=300).collect::<Vec<_>>(), 300);
}

#[tokio::test]
async fn rows_not_yet_durable_are_confirmed_by_waiting_statements_if_another_server_process_answers() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let (_service, setup, tables) = three_hundred(database).await;
    // Every statement sees another backend process. The same happens behind a pooler if the server crashes between two
    // statements.
    let name = &tables.database.name;
    tables.database.psql(&format!(
        "create sequence numbers; create schema pooled; \
         create function pooled.pg_backend_pid() returns bigint language sql as 'select nextval(''public.numbers'')'; \
         alter database {name} set search_path = pooled, pg_catalog, public",
    ));
    note_rows(&tables, "before");
    // At the end of each statement: the position of the lane, and whether the commit waits for the disk.
    tables.database.psql(
        "create table public.steps (number bigserial, step text); \
         create function public.step() returns trigger language plpgsql as $$ begin insert into public.steps (step) \
         values (concat(new.through, ' ', current_setting('synchronous_commit'))); return null; end $$; \
         create trigger step after update on public.events_progress for each row execute function public.step()",
    );
    let mut daemon = start_with_two_pages(&setup, &tables).await;
    super::until(&mut daemon, "all events are recorded", async || lane(&setup, "warehouse").await["cursor"] == 300)
        .await;
    let log = daemon.stop().await;
    let refused = log.lines("sink refused: its events wait and will be offered again");
    assert!(refused.len() == 1 && refused[0]["error"].to_string().contains("pooler"), "{refused:?}");
    // The first two statements, the lane that is taken over, and the same two statements, which now wait for the disk. They do not
    // insert the rows that are there, and do not move the lane back.
    let steps = tables.database.psql("select step from public.steps order by number");
    assert_eq!(steps, ["200 off", "300 on", "300 on", "300 on", "300 on"]);
    assert_eq!(noted_rows(&tables), (1..300).map(|offset| offset.to_string()).collect::<Vec<_>>());
    tables.assert_each_once(&(1..=300).collect::<Vec<_>>(), 300);
}

#[tokio::test]
async fn an_event_that_a_table_refuses_becomes_a_dead_letter_alone() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let (_service, mut setup, tables) = three_hundred(database).await;
    // A constraint of the operator.
    tables.database.psql("alter table events add constraint mine check (name <> 'n123')");
    // Simulates a server with a limit for JSON, and one that has no memory for a large JSON value.
    tables.database.psql(
        "create function limited() returns trigger language plpgsql as $$ begin \
         if new.name = 'n200' and new.decoded is not null then raise 'not that' using errcode = '54000'; end if; \
         if new.name = 'n150' and new.decoded is not null then \
         raise 'invalid memory alloc request size 1073741824' using errcode = 'XX000'; end if; \
         return new; end $$; \
         create trigger limited before insert on events for each row execute function limited()",
    );
    note_rows(&tables, "after");
    let trigger =
        "create trigger mine before insert on events when new.name = 'n123' begin select raise(abort, 'not that'); end";
    crate::support::sqlite(&tables.file, trigger);

    setup.set("sinks.warehouse.give_up_after", "1s");
    setup.set("sinks.local.give_up_after", "1s");
    let mut daemon = start_with_two_pages(&setup, &tables).await;
    tables.until(&mut daemon, 299).await;
    for sink in ["warehouse", "local"] {
        let told = setup.tell(&["dead-letters", "list", "--json", "c0", "--sink", sink]).await;
        assert_eq!(told.each("offset"), [123], "{sink}");
        let reason = told.each("reason").remove(0);
        assert!(reason.as_str().unwrap().contains(if sink == "local" { "not that" } else { "mine" }), "{reason}");
    }
    daemon.stop().await;
    let expected: Vec<i64> = (1..=300).filter(|offset| *offset != 123).collect();
    tables.assert_each_once(&expected, 300);
    // If a statement is refused, the next one writes nothing, although both were sent together.
    let written = noted_rows(&tables);
    assert_eq!(written, expected[..298].iter().map(ToString::to_string).collect::<Vec<_>>());
    assert_eq!(
        tables.database.psql("select event_offset from events where decoded is null order by 1"),
        ["150", "200"]
    );
}

/// Changes of an operator that make the table refuse event 3, which has no name.
const REFUSALS: [(&str, &str); 4] = [
    (
        "a trigger with a code of its own",
        "create function public.no() returns trigger language plpgsql as $$ begin \
         raise exception 'no third' using errcode = 'ZX001'; end $$; \
         create trigger no before insert on events for each row when (new.event_offset = 3) execute function public.no()",
    ),
    (
        "row-level security",
        "alter table events enable row level security; alter table events force row level security; \
         create policy all_but_third on events using (true) with check (event_offset <> 3); \
         create role guest_of_poison login; grant select, insert, update on events, events_progress to guest_of_poison",
    ),
    ("a column that must have a value", "alter table events alter column name set not null"),
    ("a constraint", "alter table events add constraint no_third check (event_offset <> 3)"),
];

#[tokio::test]
async fn an_event_that_the_table_refuses_becomes_a_dead_letter_alone() {
    if !programs(&["psql", "python3"]) {
        return;
    }
    for (why, change) in REFUSALS {
        let Some(database) = Database::new().await else { return };
        let content = |offset: i64| if offset == 3 { "{}" } else { r#"{"name":"n"}"# };
        let events = (1..=5).map(|offset| signed(offset, content(offset))).collect();
        let (_service, setup) = serving(events).await;
        let (mut setup, tables) = setup.with_tables(database);
        // Deliver one event to create the tables, and delete the state afterwards.
        setup.set("channels.c0.start", 5);
        let mut daemon = setup.start();
        tables.until(&mut daemon, 1).await;
        daemon.stop().await;
        std::fs::remove_dir_all(setup.path("state")).unwrap();
        tables.change("delete from events_progress; delete from events;").await;
        tables.database.psql(change);

        if change.contains("guest_of_poison") {
            // The policies of a table do not apply to a superuser.
            setup.set("sinks.warehouse.url", tables.database.url_as("guest_of_poison"));
        }
        setup.set("channels.c0.start", "earliest");
        setup.set("sinks.warehouse.give_up_after", "1s");
        let mut daemon = setup.start();
        tables.until(&mut daemon, 4).await;
        super::until(&mut daemon, why, async || {
            let status = setup.tell(&["status", "--json"]).await.json().remove(0);
            status["channels"][0]["dead_letters"]["events"] == 1
        })
        .await;
        daemon.stop().await;
        let written = tables.database.psql("select event_offset from events order by event_offset");
        assert_eq!(written, ["1", "2", "4", "5"], "{why}");
    }
}
