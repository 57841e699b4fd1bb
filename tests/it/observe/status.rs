//! `channeld status` is correct for a daemon that is healthy, in trouble, or not running.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::{EventSpec, Kind, Options, Simulator};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::support::{Daemon, LONGEST_WAIT, Receiver, Reply, Setup, crowded_second, signal};

/// Requests the status until `holds` accepts it.
async fn until(setup: &Setup, daemon: &mut Daemon, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let asked = Instant::now();
    loop {
        let report = setup.tell(&["status", "--json"]).await.json().remove(0);
        if holds(&report) {
            return report;
        }
        assert!(asked.elapsed() < LONGEST_WAIT, "not within {LONGEST_WAIT:?}: {what}: {report:#}");
        daemon.until("it runs", |_| true).await;
    }
}

fn lane(report: &Value, number: usize) -> &Value {
    &report["channels"][0]["lanes"][number]
}

#[tokio::test]
async fn a_healthy_daemon_is_ready_and_a_stopped_one_shows_its_stored_state() {
    let simulator = Simulator::start(Options { events: 30, forged: 0.1, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let report = until(&setup, &mut daemon, "it has caught up", |report| {
        let channel = &report["channels"][0];
        let counted = report["quarantine"]["events"] == channel["quarantined"];
        channel["state"] == "idle" && channel["cursor"] == 30 && counted
    })
    .await;
    let forged = report["channels"][0]["quarantined"].as_u64().unwrap();
    assert!(forged > 0);
    assert_eq!((&report["ready"], &report["reasons"]), (&json!(true), &json!([])));
    assert_eq!(report["daemon"]["pid"], daemon.pid());
    assert_eq!(report["channels"][0]["newest"], 30);
    assert_eq!(
        *lane(&report, 0),
        json!({
            "sink": "file", "cursor": 30, "late_deliveries": 0, "owed": 0, "lag_events": 0, "oldest_undelivered_seconds": 0, "queued_batches": 0,
            "without_confidence": 0, "dead_letters_in_a_row": 0, "condition": "ok", "state": "ok"
        })
    );

    let table = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(table.contains(": ready\n") && table.contains("\nc0 ") && table.contains("\n  file "), "{table}");

    daemon.stop().await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!((&report["ready"], &report["daemon"]), (&json!(false), &Value::Null));
    assert_eq!(report["channels"][0]["state"], "stopped");
    assert_eq!((&lane(&report, 0)["state"], &lane(&report, 0)["cursor"]), (&json!("stopped"), &json!(30)));
}

#[tokio::test]
async fn a_refusing_sink_is_retrying_or_blocked_and_others_are_ok() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("sinks.hook.retry_wait", "2s");
    let setup = setup.with("sinks.hook.retry_wait_max", "2s");
    receiver.always(Some(Reply::Refuse(503, None)));
    let mut daemon = setup.start();
    daemon.until("it has refused", |_| receiver.requests() >= 1).await;

    let state = |name: &'static str| move |report: &Value| lane(report, 1)["state"] == name;
    let report = until(&setup, &mut daemon, "it is retried", state("retrying")).await;
    assert_eq!(lane(&report, 1)["error"]["message"], "answered 503");
    let report = until(&setup, &mut daemon, "the other sink continues", |report| lane(report, 0)["cursor"] == 5).await;
    assert_eq!((&report["ready"], &lane(&report, 0)["state"]), (&json!(true), &json!("ok")));
    assert_eq!((&lane(&report, 1)["cursor"], &report["channels"][0]["cursor"]), (&Value::Null, &Value::Null));

    receiver.always(Some(Reply::Refuse(404, None)));
    let report = until(&setup, &mut daemon, "it is blocked", state("blocked")).await;
    assert_eq!(
        (&report["ready"], &report["reasons"]),
        (&json!(false), &json!(["channel c0, sink hook: answered 404"]))
    );

    receiver.always(None);
    let report = until(&setup, &mut daemon, "the events are accepted", state("ok")).await;
    assert_eq!(lane(&report, 1)["error"], Value::Null);
    daemon.stop().await;
}

#[tokio::test]
async fn a_lagging_sink_is_reported() {
    let simulator = Simulator::start(Options { events: 60, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 3);
    receiver.always(Some(Reply::Slow(Duration::from_millis(100))));
    let mut daemon = setup.start();
    daemon.until_logged("lane has fallen behind: it reads on its own until it has caught up").await;
    let behind = |report: &Value| lane(report, 1)["state"] == "behind";
    let report = until(&setup, &mut daemon, "it is behind", behind).await;
    assert!(lane(&report, 1)["reading"]["state"].is_string(), "{report:#}");
    receiver.always(None);
    until(&setup, &mut daemon, "it has rejoined", |report| lane(report, 1)["state"] == "ok").await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_range_in_doubt_is_named() {
    let (_simulator, setup, mut daemon) = crowded_second().await;
    daemon.until_logged("failed: an operator must act; retrying").await;
    let in_doubt = |report: &Value| report["channels"][0]["state"] == "in_doubt";
    let report = until(&setup, &mut daemon, "it is in doubt", in_doubt).await;
    let (channel, ready) = (&report["channels"][0], &report["ready"]);
    assert_eq!((ready, &channel["newest"]), (&json!(false), &json!(5001)));
    let (above, below) = (channel["above"].as_i64().unwrap(), channel["below"].as_i64().unwrap());
    assert!(channel["cursor"].as_i64().unwrap() <= above && above < below && below <= 5001, "{channel:#}");
    assert!(report["reasons"][0].as_str().unwrap().contains("the range is in doubt"), "{report:#}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_refused_key_is_not_ready_and_a_momentary_failure_is_ready() {
    let simulator = Simulator::start(Options { events: 3, channels: 2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let key = simulator.announcement().api_key.clone();
    simulator.archive(1);
    let mut daemon = setup.start();
    daemon.until_logged("channel does not exist or is archived: stopped; the other channels continue").await;
    daemon.until("the first events arrive", |_| setup.lines() == 3).await;
    simulator.set_api_key("another");
    let waits = |report: &Value| report["channels"][0]["state"] == "waiting";
    let report = until(&setup, &mut daemon, "it waits", waits).await;
    let reasons: Vec<_> = report["reasons"].as_array().unwrap().iter().map(|reason| reason.as_str().unwrap()).collect();
    assert!(reasons[0].starts_with("channel c0: reading events: ") && reasons[0].contains("HTTP 401"), "{reasons:?}");
    assert_eq!(reasons[1..], ["channel c1: does not exist or is archived"]);
    assert_eq!(report["channels"][1]["state"], "gone");

    simulator.set_api_key(&key);
    let idle = |report: &Value| report["channels"][0]["state"] == "idle";
    let report = until(&setup, &mut daemon, "it works again", idle).await;
    assert_eq!(report["reasons"], json!(["channel c1: does not exist or is archived"]));
    daemon.stop().await;
}

#[tokio::test]
async fn pauses_and_pending_events_are_shown_and_stay_ready() {
    let simulator = Simulator::start(Options { events: 2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with("verification.ordering", "strict");
    let mut daemon = setup.start();
    daemon.until("the first events arrive", |_| setup.lines() == 2).await;

    assert_eq!(setup.tell(&["pause", "c0", "--sink", "file"]).await.code, Some(0));
    let report = until(&setup, &mut daemon, "it is paused", |report| lane(report, 0)["state"] == "paused").await;
    assert_eq!(report["ready"], true);
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "file"]).await.code, Some(0));

    let offset = simulator.publish_one(0, EventSpec::Late(Kind::WatcherEvent));
    let awaits = |report: &Value| report["channels"][0]["state"] == "awaiting_proof";
    let report = until(&setup, &mut daemon, "it waits for the proof", awaits).await;
    assert_eq!((&report["channels"][0]["offset"], &report["ready"]), (&json!(offset), &json!(true)));

    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
    let paused = |report: &Value| report["channels"][0]["state"] == "paused";
    let report = until(&setup, &mut daemon, "it is paused", paused).await;
    assert_eq!((&lane(&report, 0)["state"], &report["ready"]), (&json!("paused"), &json!(true)));
    daemon.stop().await;
}

#[tokio::test]
async fn watch_writes_plain_text_without_a_terminal() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let config = setup.write();
    let watch = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
        command.arg("status").args(arguments).arg("--config").arg(&config).env_clear().kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watching = command.spawn().unwrap();
        let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        (watching, lines)
    };
    // Start watching before the daemon, so that the command must wait for it.
    let (mut watching, mut lines) = watch(&["--watch", "1"]);
    assert!(lines.next_line().await.unwrap().unwrap().starts_with("no daemon is running with "));
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 5).await;
    let mut reports = 0;
    while reports < 2 {
        let line = lines.next_line().await.unwrap().unwrap();
        assert!(!line.contains('\u{1b}'), "{line}");
        reports += usize::from(line.starts_with("channeld "));
    }
    signal(&watching, Signal::INT);
    assert_eq!(watching.wait().await.unwrap().code(), Some(0));

    let (mut watching, mut lines) = watch(&["--watch", "1", "--json"]);
    for _ in 0..2 {
        let report: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(report["daemon"]["pid"], daemon.pid());
    }
    watching.kill().await.unwrap();
    daemon.stop().await;
}
