//! `channeld check --history` and the daemon compare the history of the service with the sinks.

use std::fs;

use serde_json::Value;
use simulator::Options;

use super::failures::lane;
use super::{tables, until};
use crate::support::{Setup, Told};

const SINKS: [&str; 3] = ["warehouse", "local", "file"];

/// Compares channel `c0` with its sinks.
async fn check(setup: &Setup) -> (Told, Value) {
    let told = setup.tell(&["check", "--history", "c0", "--json"]).await;
    let found = serde_json::from_slice(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"));
    (told, found)
}

#[tokio::test]
async fn a_deleted_event_is_listed_with_the_command_that_replays_it() {
    let Some((simulator, mut setup, tables)) = tables(Options { events: 9, ..Options::default() }).await else {
        return;
    };
    setup.set("channels.c0.sinks", SINKS.to_vec());
    let mut daemon = setup.start();
    tables.until(&mut daemon, 9).await;
    daemon.until("all events are in the file", |_| setup.lines() == 9).await;
    daemon.stop().await;
    let (told, found) = check(&setup).await;
    assert_eq!((told.code, &found["sinks"][0]["missing"]), (Some(0), &Value::from(0)), "{told:?}");

    tables.change("delete from events where event_offset in (3, 4, 7)").await;
    let lines = fs::read_to_string(setup.path("events.jsonl")).unwrap();
    let kept: Vec<_> =
        lines.lines().enumerate().filter(|(at, _)| ![2, 3, 6].contains(at)).map(|(_, line)| line).collect();
    fs::write(setup.path("events.jsonl"), kept.join("\n") + "\n").unwrap();
    let (told, found) = check(&setup).await;
    assert_eq!(told.code, Some(1), "{told:?}");
    for (sink, found) in SINKS.iter().zip(found["sinks"].as_array().unwrap()) {
        assert_eq!(
            (&found["sink"], &found["events"], &found["held"]),
            (&Value::from(*sink), &9.into(), &6.into()),
            "{told:?}"
        );
        let missing: Vec<_> =
            found["missing_events"].as_array().unwrap().iter().map(|event| &event["offset"]).collect();
        assert_eq!(missing, [3, 4, 7], "{told:?}");
        let ranges: Vec<_> =
            found["replay"].as_array().unwrap().iter().map(|range| (&range["from"], &range["to"])).collect();
        assert_eq!(ranges, [(&Value::from(3), &Value::from(4)), (&Value::from(7), &Value::from(7))], "{told:?}");
    }

    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    for range in found["sinks"].as_array().unwrap().iter().flat_map(|sink| sink["replay"].as_array().unwrap()) {
        let command: Vec<_> = range["command"].as_str().unwrap().split(' ').skip(1).collect();
        let told = setup.tell(&command).await;
        assert_eq!(told.code, Some(0), "{told:?}");
    }
    until(&mut daemon, "nothing is missing", async || check(&setup).await.0.code == Some(0)).await;
    // An event that is pending does not count as missing.
    tables.until(&mut daemon, 9).await;
    daemon.until("all events are in the file again", |_| setup.lines() >= 9).await;
    daemon.stop().await;
    assert_eq!(tables.rows().await, [9, 9]);
    assert_eq!(setup.lines(), 9);
    drop(simulator);
}

#[tokio::test]
async fn the_daemon_finds_a_deleted_event_and_is_not_ready_until_it_is_replayed() {
    let Some((_simulator, mut setup, tables)) = tables(Options { events: 9, ..Options::default() }).await else {
        return;
    };
    setup.set("channels.c0.compare", "1s");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 9).await;
    let missing = async |sink: &str| lane(&setup, sink).await["compared"]["missing"].clone();
    for sink in ["warehouse", "local"] {
        until(&mut daemon, "the history was compared", async || missing(sink).await == 0).await;
    }
    tables.change("delete from events where event_offset = 5").await;
    for sink in ["warehouse", "local"] {
        until(&mut daemon, "the event is missing", async || missing(sink).await == 1).await;
        assert_eq!(lane(&setup, sink).await["compared"]["first_missing"], serde_json::json!([5]));
    }
    let status = setup.tell(&["status"]).await;
    let status = String::from_utf8(status.out).unwrap();
    assert!(status.contains("an event of the service is missing, at offset 5"), "{status}");
    for sink in ["warehouse", "local"] {
        let replay = ["replay", "--channel", "c0", "--sink", sink, "--from", "5", "--to", "5"];
        assert_eq!(setup.tell(&replay).await.code, Some(0));
        until(&mut daemon, "the event was replayed", async || missing(sink).await == 0).await;
    }
    tables.until(&mut daemon, 9).await;
    daemon.stop().await;
}
