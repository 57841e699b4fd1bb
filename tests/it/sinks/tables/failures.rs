//! Databases that are unavailable, full, or changed by someone else. Their lanes wait, and all other lanes continue.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use simulator::{Options, Simulator};

use super::tables;
use crate::support::{
    Daemon, Database, Delivered, Line, Mount, Relay, Server, Setup, deliverable, everything, fill, programs, skip,
};

const REFUSED: &str = "sink refused: its events wait and will be offered again";

/// The time limit for the other sinks while one database is unavailable. These sinks normally need far less. The limit is
/// shorter than the 10 s that a lane waits for an answer of a database.
const ON_TIME: Duration = Duration::from_secs(9);

/// Makes a refusing sink retry now.
async fn resume(setup: &Setup, sink: &str) {
    let told = setup.tell(&["resume", "c0", "--sink", sink]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
}

/// The lane of a sink in the status, or null before it has started.
pub(super) async fn lane(setup: &Setup, sink: &str) -> Value {
    let mut report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let mut lanes = report["channels"][0]["lanes"].take();
    let lane = lanes.as_array_mut().and_then(|lanes| lanes.iter_mut().find(|lane| lane["sink"] == sink));
    lane.map(Value::take).unwrap_or_default()
}

/// The kind and the message of a lane's error in the status. Empty before the lane has started.
pub(super) async fn trouble(setup: &Setup, sink: &str) -> (String, String) {
    let lane = lane(setup, sink).await;
    let text = |name: &str| lane["error"][name].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("message"))
}

/// Waits until the lane is unavailable with an error that contains these words.
pub(super) async fn until_says(setup: &Setup, daemon: &mut Daemon, sink: &str, words: &str) {
    let deadline = Instant::now() + crate::support::LONGEST_WAIT;
    loop {
        let (kind, said) = trouble(setup, sink).await;
        if kind == "unavailable" && said.contains(words) {
            return;
        }
        assert!(!daemon.has_ended() && Instant::now() < deadline, "{words}: {kind}: {said}");
    }
}

#[tokio::test]
async fn a_server_that_fails_after_its_commit_loses_nothing_and_delays_no_other_sink() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let database = Database::on(Arc::new(server)).await;
    let relay = Relay::before(database.server.socket()).await;
    let simulator = Simulator::start(Options { events: 100, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let (mut setup, tables) = Setup::reading(&simulator).with_tables(database);
    setup.set("sinks.warehouse.url", tables.database.url_by(relay.address()));
    setup.set("sinks.warehouse.give_up_after", "1ms");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 100).await;

    // The server commits, but the relay drops its answers. Then the server is killed.
    relay.becomes(Line::CutsAnswers);
    simulator.publish(0, 20);
    tables.until(&mut daemon, 120).await;
    tables.database.server.kill();
    relay.becomes(Line::Good);
    relay.cut();
    let began = Instant::now();
    simulator.publish(0, 20);
    let other = || crate::support::rows_of(&tables.file);
    daemon.until("the other sink continues", |_| other() == 140).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    until_says(&setup, &mut daemon, "warehouse", "check host and port in sinks.warehouse.url").await;
    tables.database.server.run();
    resume(&setup, "warehouse").await;
    tables.until(&mut daemon, 140).await;

    // The server is killed during the delivery of many events.
    simulator.publish(0, 400);
    super::until(&mut daemon, "some events have arrived", async || tables.rows().await[0] > 140).await;
    tables.database.server.kill();
    tables.database.server.run();
    tables.until(&mut daemon, 540).await;
    let dead = setup.tell(&["dead-letters", "list", "--json"]).await;
    assert_eq!(dead.json(), [] as [serde_json::Value; 0], "no event became a dead letter");
    daemon.stop().await;
    tables.assert_each_once(&deliverable(&simulator, 0), 540);
}

/// How long the server is unavailable. In a full run this is longer than the longest wait between two attempts.
fn away() -> Duration {
    if everything() { Duration::from_secs(60) } else { Duration::from_millis(2_500) }
}

#[tokio::test]
async fn a_server_down_for_a_minute_delays_no_other_sink_and_gets_each_event_once() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let database = Database::on(Arc::new(server)).await;
    let simulator = Simulator::start(Options { events: 50, ..Options::default() }).await.unwrap();
    let (mut setup, tables) = Setup::reading(&simulator).with_tables(database);
    setup.set("channels.c0.sinks", vec!["warehouse", "local", "file"]);
    setup.set("sinks.warehouse.give_up_after", "1s");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 50).await;

    tables.database.server.kill();
    let began = Instant::now();
    let mut rows = 50;
    while began.elapsed() < away() {
        let published = Instant::now();
        simulator.publish(0, 10);
        rows += 10;
        let others = || (setup.lines(), crate::support::rows_of(&tables.file));
        daemon.until("the other sinks continue", |_| others() == (rows, i64::try_from(rows).unwrap())).await;
        assert!(published.elapsed() < ON_TIME, "{:?}", published.elapsed());
    }
    daemon.until_logged(REFUSED).await;
    let (kind, said) = trouble(&setup, "warehouse").await;
    assert!(kind == "unavailable" && said.contains("sinks.warehouse.url"), "{kind}: {said}");
    tables.database.server.run();
    // The lane retries without an operator.
    tables.until(&mut daemon, rows).await;
    let dead = setup.tell(&["dead-letters", "list", "--json"]).await;
    assert_eq!(dead.json(), [] as [serde_json::Value; 0], "no event became a dead letter");
    let log = daemon.stop().await;
    assert_eq!(log.lines("sink accepts events again").len(), 1, "{}", log.0);
    let expected = deliverable(&simulator, 0);
    tables.assert_each_once(&expected, i64::try_from(rows).unwrap());
    let lines: Vec<_> = Delivered::read(&setup.path("events.jsonl")).iter().map(|line| line.offset).collect();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_full_disk_is_retried_and_delays_no_other_sink() {
    let Some((simulator, mut setup, tables)) = tables(Options { events: 20, ..Options::default() }).await else {
        return;
    };
    let Some(mount) = Mount::new(setup.path("small"), "32m") else { return };
    // The user of the server needs access to the mount.
    for place in [setup.path(""), mount.at.clone()] {
        std::fs::set_permissions(place, Permissions::from_mode(0o777)).unwrap();
    }
    let (place, name) = (mount.at.join("tablespace"), &tables.database.name);
    let mut make = tables.database.server.command_of("mkdir");
    crate::support::run(make.arg(&place));
    tables.database.psql(&format!("create tablespace small_of_{name} location '{}'", place.display()));
    tables.database.psql(&format!("alter database {name} set default_tablespace = small_of_{name}"));
    let file = mount.at.join("events.db");
    setup.set("sinks.local.path", file.display().to_string());
    setup.set("channels.c0.sinks", vec!["warehouse", "local", "file"]);
    let tables = crate::support::Tables { file, ..tables };
    let mut daemon = setup.start();
    tables.until(&mut daemon, 20).await;

    let filling = fill(&mount.at);
    simulator.publish(0, 400);
    daemon.until("the other sink continues", |_| setup.lines() == 420).await;
    until_says(&setup, &mut daemon, "warehouse", "make room at the server").await;
    until_says(&setup, &mut daemon, "local", "make room on its file system").await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(report["ready"], json!(false), "{report:#}");
    std::fs::remove_file(filling).unwrap();
    resume(&setup, "warehouse").await;
    resume(&setup, "local").await;
    tables.until(&mut daemon, 420).await;
    daemon.stop().await;
    tables.assert_each_once(&deliverable(&simulator, 0), 420);
    // The server must not have files in the mount when it is unmounted.
    let drop = format!(
        "alter database {name} reset default_tablespace; drop table events, events_progress;",
        name = tables.database.name
    );
    tables.database.psql(&drop);
    tables.database.psql(&format!("drop tablespace small_of_{}", tables.database.name));
}

#[tokio::test]
async fn a_changed_table_is_reported_and_repaired_if_nothing_is_lost() {
    let Some((simulator, mut setup, tables)) = tables(Options { events: 20, ..Options::default() }).await else {
        return;
    };
    setup.set("sinks.warehouse.give_up_after", "1ms");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 20).await;
    let mut rows = 20;
    for (change, words, mend) in [
        (
            "alter table events rename column record to mine",
            "has no column record",
            "alter table events rename column mine to record",
        ),
        (
            "alter table events add column mine int not null default 1; alter table events alter column mine drop default",
            "give each column that you have added",
            "alter table events drop column mine",
        ),
        (
            "alter table events rename to events_of_others; create view events as select 1",
            "table",
            "drop view events; alter table events_of_others rename to events",
        ),
    ] {
        tables.database.psql(change);
        simulator.publish(0, 5);
        rows += 5;
        until_says(&setup, &mut daemon, "warehouse", words).await;
        tables.database.psql(mend);
        resume(&setup, "warehouse").await;
        tables.until(&mut daemon, rows).await;
    }
    // The sink creates a missing column.
    tables.database.psql("alter table events drop column proof");
    simulator.publish(0, 5);
    daemon.until_logged(REFUSED).await;
    tables.until(&mut daemon, rows + 5).await;
    daemon.stop().await;
    tables.assert_each_once(&deliverable(&simulator, 0), i64::try_from(rows).unwrap() + 5);
}

#[tokio::test]
async fn a_locked_table_has_one_waiting_statement_and_not_one_per_attempt() {
    if !everything() {
        // Slow: every attempt waits for the whole timeout.
        return;
    }
    let Some((simulator, setup, tables)) = tables(Options { events: 20, ..Options::default() }).await else { return };
    let mut daemon = setup.start();
    tables.until(&mut daemon, 20).await;
    let client = tables.database.server.client(&tables.database.name).await;
    client.batch_execute("begin; lock table events in exclusive mode").await.unwrap();
    // These events need several statements, so another statement follows the waiting one.
    simulator.publish(0, 500);
    until_says(&setup, &mut daemon, "warehouse", "no answer for 10 s; the server may be overloaded").await;
    let offers = |daemon: &Daemon| {
        let lines = daemon.log().lines("sink refused again");
        lines.iter().filter(|line| line["sink"] == "warehouse").count()
    };
    daemon.until("the lane has tried three times", |daemon| offers(daemon) >= 2).await;
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    assert!(tables.database.number(waiting).await <= 1);
    client.batch_execute("rollback").await.unwrap();
    tables.until(&mut daemon, 520).await;
    daemon.stop().await;
    tables.assert_each_once(&deliverable(&simulator, 0), 520);
}

#[tokio::test]
async fn a_delayed_change_of_the_tables_is_tried_again_and_leaves_no_waiting_statement() {
    let Some((simulator, setup, tables)) = tables(Options { events: 20, ..Options::default() }).await else { return };
    let client = tables.database.server.client(&tables.database.name).await;
    // The lock under which one instance at a time changes the tables.
    client.batch_execute("select pg_advisory_lock(7163082334359609964)").await.unwrap();
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    until_says(&setup, &mut daemon, "warehouse", "locked by another session").await;
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    assert!(tables.database.number(waiting).await <= 1);
    client.batch_execute("select pg_advisory_unlock_all()").await.unwrap();
    tables.until(&mut daemon, 20).await;
    daemon.stop().await;
    tables.assert_each_once(&deliverable(&simulator, 0), 20);
}

#[tokio::test]
async fn a_silent_first_host_hides_the_second_one_neither_from_the_state_nor_from_a_sink() {
    let (Some(of_state), Some(of_sink)) = (Database::new().await, Database::new().await) else { return };
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let relay = Relay::before(of_state.server.socket()).await;
    // The system accepts connections to this listener, and nothing ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let first = format!("@{},", silent.local_addr().unwrap());
    let url = |database: &Database| database.url_by(relay.address()).replacen('@', &first, 1);
    let sharing = Setup::reading(&simulator)
        .sharing(&of_state, "only")
        .with("state.url", url(&of_state))
        .with("sinks.file.per_instance", true);
    let writing = Setup::reading(&simulator)
        .with("sinks.warehouse.type", "postgres")
        .with("sinks.warehouse.url", url(&of_sink))
        .with("channels.c0.sinks", vec!["warehouse"]);
    let (mut sharing_daemon, mut writing_daemon) = (sharing.start(), writing.start());
    sharing_daemon.until("the events arrive", |_| sharing.lines() == 5).await;
    let is_recorded = |daemon: &Daemon| daemon.log().lines("batch recorded").iter().any(|line| line["offset"] == 5);
    writing_daemon.until("the events arrive", is_recorded).await;
    assert_eq!(of_sink.number("select count(*) from events").await, 5);
    sharing_daemon.stop().await;
    writing_daemon.stop().await;
}
