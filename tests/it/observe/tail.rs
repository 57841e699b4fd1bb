//! `channeld tail` shows the events that the daemon delivers, or the events that the service has.

use std::process::Stdio;

use serde_json::Value;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::support::Setup;

/// A running `channeld tail`. It is killed when this is dropped.
pub(crate) struct Tail {
    pub(crate) child: Child,
    pub(crate) lines: Lines<BufReader<ChildStdout>>,
    pub(crate) notes: Lines<BufReader<ChildStderr>>,
}

impl Tail {
    pub(crate) fn start(setup: &Setup, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        command.arg("tail").args(arguments).arg("--config").arg(setup.path("channeld.toml")).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let notes = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines, notes }
    }

    pub(crate) async fn next(&mut self) -> String {
        self.lines.next_line().await.unwrap().unwrap()
    }

    pub(crate) async fn json(&mut self) -> Value {
        serde_json::from_str(&self.next().await).unwrap()
    }
}

/// Publishes events until the tail shows one. From then on it shows every event.
async fn begin(simulator: &Simulator, channel: usize, tail: &mut Tail) -> Value {
    let publish = async {
        loop {
            simulator.publish(channel, 1);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::select! { shown = tail.json() => shown, () = publish => unreachable!("it does not end") }
}

#[tokio::test]
async fn tail_shows_each_delivered_event_once() {
    let simulator = Simulator::start(Options { channels: 2, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("sinks.audit.type", "file");
    setup.set("sinks.audit.path", setup.path("audit.jsonl").display().to_string());
    setup.set("channels.c0.sinks", serde_json::json!(["file", "audit"]));
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;

    let mut tail = Tail::start(&setup, &["c0", "--json"]);
    let first = begin(&simulator, 0, &mut tail).await;
    simulator.publish(1, 3);
    simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    let last = simulator.publish_one(0, EventSpec::Honest(Kind::WalletStatus));
    let mut shown = vec![first];
    while shown.last().unwrap()["offset"] != last {
        shown.push(tail.json().await);
    }
    daemon
        .until("everything is in the file", |_| {
            setup.delivered().iter().any(|one| one.channel == "c0" && one.offset == last)
        })
        .await;
    let offsets: Vec<_> = shown.iter().map(|record| record["offset"].as_i64().unwrap()).collect();
    let delivered: Vec<_> = setup.offsets("c0").into_iter().filter(|offset| *offset >= offsets[0]).collect();
    assert_eq!(offsets, delivered, "tail shows each delivered event once, in order, and no forged event");
    let line = std::fs::read_to_string(setup.path("audit.jsonl")).unwrap();
    let line: Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    assert_eq!(shown.last(), Some(&line), "tail shows the record itself");

    let mut filtered = Tail::start(&setup, &["--type", "wallet.status", "--sink", "audit", "--events", "1"]);
    let publish = async {
        loop {
            simulator.publish(0, 2);
            simulator.publish_one(0, EventSpec::Honest(Kind::WalletStatus));
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let line = tokio::select! { line = filtered.next() => line, () = publish => unreachable!("it does not end") };
    assert!(line.starts_with("unsigned c0 ") && line.contains("wallet.status"), "{line}");
    assert!(!line.contains('\u{1b}'), "colours are for terminals: {line:?}");
    assert_eq!(filtered.lines.next_line().await.unwrap(), None, "tail ends after one event");
    daemon.stop().await;
}

#[tokio::test]
async fn without_a_daemon_tail_asks_the_service_and_shows_forgeries_as_rejected() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    let setup = Setup::reading(&simulator);
    setup.write();
    let mut tail = Tail::start(&setup, &[]);
    assert!(tail.notes.next_line().await.unwrap().unwrap().contains("no daemon is running with the state in"));
    let mut lines = Vec::new();
    for _ in 0..6 {
        lines.push(tail.next().await);
    }
    assert!(lines[..5].iter().all(|line| !line.starts_with("rejected")), "{lines:#?}");
    assert!(lines[5].starts_with("rejected c0 ") && lines[5].contains("event-hash-mismatch"), "{lines:#?}");
    simulator.publish(0, 1);
    assert!(tail.next().await.contains(" c0     7  "), "a later event follows");

    let told = setup.tell(&["tail", "--from-service", "--last", "2", "--events", "2", "--json"]).await;
    let offsets: Vec<_> = told.each("offset");
    assert_eq!(offsets, [6, 7]);
}

#[tokio::test]
async fn with_a_daemon_tail_can_first_show_the_newest_events() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("everything is delivered", |_| setup.offsets("c0") == [1, 2, 3, 4, 5]).await;

    let mut tail = Tail::start(&setup, &["--last", "2", "--events", "3", "--json"]);
    assert_eq!([tail.json().await["offset"].clone(), tail.json().await["offset"].clone()], [4, 5]);
    simulator.publish(0, 1);
    assert_eq!(tail.json().await["offset"], 6, "no event is missing between the old events and the new ones");
    assert_eq!(tail.lines.next_line().await.unwrap(), None, "tail ends after three events");
    daemon.stop().await;
}

#[tokio::test]
async fn get_shows_an_event_by_its_offset() {
    let simulator = Simulator::start(Options { events: 5, sparse: true, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let newest = setup.tell(&["search", "c0", "--limit", "3", "--json"]).await;
    let offset = newest.each("offset")[1].to_string();
    let shown = setup.tell(&["get", "c0", &offset, "--json"]).await;
    assert_eq!(shown.each("offset").iter().map(ToString::to_string).collect::<Vec<_>>(), [offset]);
    let none = setup.tell(&["get", "c0", "999999"]).await;
    assert!(none.code == Some(1) && none.errors.contains("channel c0 has no event at offset 999999"), "{none:?}");
}

#[tokio::test]
async fn a_closed_pipe_ends_tail_quietly() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.args(["tail", "--from-service", "--config"]).arg(setup.path("channeld.toml")).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    // The reader is gone before the first line.
    drop(child.stdout.take());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

#[tokio::test]
async fn a_closed_pipe_ends_the_demonstration_quietly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.arg("demo").env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next_line().await.unwrap().unwrap().starts_with("A simulated service listens on "));
    drop(lines);
    let output = child.wait_with_output().await.unwrap();
    let log = String::from_utf8(output.stderr).unwrap();
    // A slow machine reads the forged event of the demonstration before it prints the first line.
    let complaints: Vec<_> = log.lines().filter(|line| !line.contains("event rejected: not delivered")).collect();
    assert_eq!((output.status.code(), complaints), (Some(0), Vec::new()));
}
