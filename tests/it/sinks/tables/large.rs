//! Events that exceed a limit of the database server, or a limit that an operator has set.

use std::sync::Arc;
use std::time::Instant;

use simulator::{Options, Simulator};

use super::failures::trouble;
use crate::support::{
    Daemon, Database, Delivered, Relay, Server, Setup, Tables, deliverable, everything, programs, serving, signed,
    skip, sqlite,
};

/// Pairs of distinct words, joined with a hyphen. A `tsvector` stores both words and the compound. All letters have
/// four bytes.
fn compounds(letters: usize) -> String {
    const LETTERS: u32 = 200;
    let part = |number: u32| -> String {
        let letter = |at: u32| char::from_u32(0x2_0000 + (number + 7 * at) % 40_000).unwrap();
        (0..LETTERS).map(letter).collect()
    };
    let compound = |number: u32| format!("{}-{} ", part(2 * number), part(2 * number + 1));
    let count = u32::try_from(letters).unwrap() / (2 * LETTERS);
    (0..count).map(compound).collect()
}

/// Distinct words of seven letters.
fn words(bytes: usize) -> String {
    let words: Vec<_> = (0..bytes / 8).map(|number| format!("w{number:06} ")).collect();
    words.concat()
}

/// Waits until the sink refuses an event, and returns the error of its lane.
async fn refusal(setup: &Setup, daemon: &mut Daemon, sink: &str) -> String {
    let deadline = Instant::now() + crate::support::LONGEST_WAIT;
    loop {
        let (kind, said) = trouble(setup, sink).await;
        if kind == "refused" {
            return said;
        }
        assert!(Instant::now() < deadline, "{sink}: {kind}: {said}");
        daemon.until("the daemon runs", |_| true).await;
    }
}

#[tokio::test]
async fn an_event_with_more_words_than_a_tsvector_holds_is_stored_whole() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let server = Arc::new(server);
    // The database needs the encoding UTF-8, because only letters of several bytes reach the limit in bytes.
    let client = server.client("postgres").await;
    client.batch_execute("create database wide template template0 encoding 'UTF8'").await.unwrap();
    let database = Database { server, name: "wide".to_owned() };
    let contents = [
        r#"{"name":"first"}"#.to_owned(),
        format!(r#"{{"name":"ascii","t":"{}"}}"#, words(200_000)),
        format!(r#"{{"name":"compounds","t":"{}"}}"#, compounds(150_000)),
        format!(r#"{{"name":"long {}"}}"#, compounds(150_000)),
        r#"{"name":"last"}"#.to_owned(),
    ];
    let too_long = format!("select to_tsvector('simple', '{}')", &compounds(150_000));
    let refused = database.try_query(&too_long).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("too long for tsvector"), "{refused:?}");

    let events = contents.iter().zip(1..).map(|(content, offset)| signed(offset, content)).collect();
    let (_service, setup) = serving(events).await;
    let (mut setup, tables) = setup.with_tables(database);
    setup.set("sinks.warehouse.search", "words");
    setup.set("sinks.local.search", "words");
    let mut daemon = setup.start();
    tables.until(&mut daemon, contents.len()).await;
    let log = daemon.stop().await;
    assert!(log.lines("sink refused: its events wait and will be offered again").is_empty(), "{}", log.0);
    tables.assert_each_once(&[1, 2, 3, 4, 5], 5);
    assert_eq!(tables.both("select count(*) from events where decoded is null"), [["0"], ["0"]]);
    let [one, other] = tables.both("select record from events order by event_offset");
    for ((one, other), content) in one.iter().zip(&other).zip(&contents) {
        for record in [one, other] {
            assert!(Delivered::parse(record).decoded.unwrap().get() == content, "{}", &content[..20]);
        }
    }
    let found =
        |word: &str| format!("select event_offset from events where search @@ plainto_tsquery('simple', '{word}')");
    for (word, offsets) in
        [("first", &["1"][..]), ("w000000", &["2"]), ("w010000", &["2"]), ("compounds", &["3"]), ("long", &["4"])]
    {
        assert_eq!(tables.database.psql(&found(word)), offsets, "{word}");
    }
}

/// The operator's limit, and the size of the content of event 4, in bytes.
const LIMIT: usize = 100_000;
const LARGE: usize = 300_000;

/// Makes both tables refuse records of more than [`LIMIT`] bytes.
fn limit(tables: &Tables) {
    tables.database.psql(&format!(
        "alter table events add constraint no_more_than_{LIMIT}_bytes check (octet_length(record) <= {LIMIT})"
    ));
    let trigger = format!(
        "create trigger limited before insert on events when octet_length(new.record) > {LIMIT} \
         begin select raise(abort, 'no more than {LIMIT} bytes'); end"
    );
    sqlite(&tables.file, &trigger);
}

#[tokio::test]
async fn an_event_too_large_for_a_table_blocks_and_becomes_a_dead_letter_alone() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let content = |offset: i64| format!(r#"{{"t":"{}"}}"#, "x".repeat(if offset == 4 { LARGE } else { 1_000 }));
    let events = (1..=6).map(|offset| signed(offset, &content(offset))).collect();
    let (_service, setup) = serving(events).await;
    let (mut setup, tables) = setup.with_tables(database);
    // Deliver one event to create the tables, and delete the state afterwards.
    setup.set("channels.c0.start", 6);
    let mut daemon = setup.start();
    tables.until(&mut daemon, 1).await;
    daemon.stop().await;
    limit(&tables);
    std::fs::remove_dir_all(setup.path("state")).unwrap();
    tables.change("delete from events_progress;").await;

    setup.set("channels.c0.start", "earliest");
    setup.set("channels.c0.sinks", vec!["warehouse", "local", "file"]);
    let mut daemon = setup.start();
    daemon.until("the file has all events", |_| setup.lines() == 6).await;
    tables.until(&mut daemon, 4).await;
    for (sink, limited_by) in
        [("warehouse", format!("no_more_than_{LIMIT}_bytes")), ("local", format!("no more than {LIMIT} bytes"))]
    {
        let said = refusal(&setup, &mut daemon, sink).await;
        assert!(said.contains(&limited_by), "{sink}: {said}");
        let size = said.rsplit_once("its record has ").unwrap().1.trim_end_matches(" bytes");
        assert!(size.parse::<usize>().unwrap() > LARGE, "{sink}: {said}");
    }
    assert_eq!(tables.both("select event_offset from events order by 1"), [["1", "2", "3", "6"], ["1", "2", "3", "6"]]);
    daemon.stop().await;

    setup.set("sinks.warehouse.give_up_after", "1s");
    setup.set("sinks.local.give_up_after", "1s");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 5).await;
    for sink in ["warehouse", "local"] {
        let told = setup.tell(&["dead-letters", "list", "--json", "c0", "--sink", sink]).await;
        assert_eq!(told.each("offset"), [4], "{sink}");
    }
    daemon.stop().await;
    tables.assert_each_once(&[1, 2, 3, 5, 6], 6);
}

/// While PostgreSQL 15 reads a JSON array, its elements use at most 1 GiB, which is enough for 16,777,216.
const ELEMENTS: usize = 17_000_000;

#[tokio::test]
async fn an_event_whose_json_exceeds_the_servers_memory_is_stored_in_its_record() {
    if !everything() {
        // The event is almost as large as the largest that the daemon reads, so the test is slow.
        return;
    }
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let contents =
        [r#"{"name":"first"}"#.to_owned(), format!("[{}1]", "1,".repeat(ELEMENTS)), r#"{"name":"last"}"#.to_owned()];
    let events = contents.iter().zip(1..).map(|(content, offset)| signed(offset, content)).collect();
    let (_service, setup) = serving(events).await;
    let (setup, tables) = setup.with_tables(database);
    let mut daemon = setup.start();
    tables.until(&mut daemon, contents.len()).await;
    daemon.stop().await;
    tables.assert_each_once(&[1, 2, 3], 3);
    assert_eq!(tables.database.psql("select event_offset from events where decoded is null"), ["2"]);
    for records in tables.both("select record from events where event_offset = 2") {
        assert!(Delivered::parse(&records[0]).decoded.unwrap().get() == contents[1], "the record is whole");
    }
}

/// With 200 rows in a statement, this trigger takes four seconds.
const SLOW_ROWS: &str = "create function public.take_time() returns trigger language plpgsql as $$ begin \
    perform pg_sleep(0.02); return new; end $$; \
    create trigger slow before insert on public.events for each row execute function public.take_time()";

#[tokio::test]
async fn statements_that_exceed_the_time_limit_of_the_server_become_smaller_until_they_succeed() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let events = (1..=200).map(|offset| signed(offset, r#"{"name":"slow"}"#)).collect();
    let (_service, setup) = serving(events).await;
    let (mut setup, tables) = setup.with_tables(database);
    // Deliver one event to create the tables, and delete the state afterwards.
    setup.set("channels.c0.start", 200);
    let mut daemon = setup.start();
    tables.until(&mut daemon, 1).await;
    daemon.stop().await;
    std::fs::remove_dir_all(setup.path("state")).unwrap();
    tables.change("delete from events_progress; delete from events;").await;
    tables.database.psql(SLOW_ROWS);
    tables.database.psql(&format!("alter database \"{}\" set statement_timeout = '1s'", tables.database.name));

    setup.set("channels.c0.start", "earliest");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 200).await;
    let log = daemon.stop().await;

    let refused = log.lines("sink refused: its events wait and will be offered again");
    let why = refused.first().map(|line| line["error"].to_string()).unwrap_or_default();
    assert!(why.contains("with fewer rows in each statement"), "{why}");
    tables.assert_each_once(&(1..=200).collect::<Vec<_>>(), 200);
}

/// In a second, this many bytes pass to the server. 200 rows take longer than the 10 s that the first answer may take.
const SLOW_CONNECTION: usize = 100_000;

/// The number of rows of the largest statement that has written events above an offset.
fn largest_statement(tables: &Tables, above: usize) -> usize {
    let query = format!(
        "select max(rows) from (select count(*) as rows from events where event_offset > {above} group by xmin::text) s"
    );
    tables.database.psql(&query)[0].parse().unwrap()
}

#[tokio::test]
async fn statements_on_a_slow_connection_become_smaller_until_they_succeed_and_grow_again() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let database = Database::on(Arc::new(server)).await;
    let relay = Relay::before(database.server.socket()).await;
    let simulator = Simulator::start(Options { events: 1, ..Options::default() }).await.unwrap();
    let (mut setup, tables) = Setup::reading(&simulator).with_tables(database);
    setup.set("sinks.warehouse.url", tables.database.url_by(relay.address()));
    let mut daemon = setup.start();
    tables.until(&mut daemon, 1).await;
    relay.passes(SLOW_CONNECTION);
    simulator.publish(0, 400);
    tables.until(&mut daemon, 401).await;
    let refused = daemon.log().lines("sink refused: its events wait and will be offered again");
    assert!(refused.len() == 1, "one attempt takes too long: {refused:?}");
    // The server may receive the first statement completely after the daemon has given it up.
    assert!(largest_statement(&tables, 201) <= 125, "a quarter of 500");

    relay.passes(0);
    simulator.publish(0, 4_000);
    tables.until(&mut daemon, 4_401).await;
    daemon.stop().await;
    assert!(largest_statement(&tables, 401) > 125, "statements become larger again");
    tables.assert_each_once(&deliverable(&simulator, 0), 4_401);
}
