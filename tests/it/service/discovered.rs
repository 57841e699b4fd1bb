//! Channels of the organization are added while the daemon runs, and stay.

use serde_json::{Value, json};
use simulator::{Options, Route, Simulator};

use crate::support::{Admin, Answered, Daemon, Setup, deliverable};

const FOUND: &str = "a new channel of the organization was found: it is added";
const NOT_LISTED: &str = "the organization's channels cannot be listed: no new channel is added";

/// A service with three channels. It lists only the first one.
async fn service() -> Simulator {
    let simulator = Simulator::start(Options { channels: 3, events: 10, ..Options::default() }).await.unwrap();
    (1..3).for_each(|channel| simulator.set_listed(channel, false));
    simulator
}

/// Discovers every channel. The file configures none, or only the first one.
fn discovering(simulator: &Simulator, configured: usize) -> Setup {
    let mut setup = Setup::reading(simulator).with_admin();
    (configured..3).for_each(|channel| setup.remove(&format!("channels.c{channel}")));
    setup.set("discover.channels", "simulated*");
    setup.set("discover.sinks", json!(["file"]));
    setup.set("discover.every", "1s");
    setup
}

fn name(channel: usize) -> String {
    format!("simulated-channel-{channel}")
}

/// The names of the channels in the status, each with its mark.
fn shown(report: &Value) -> Vec<(String, bool)> {
    let channels = report["channels"].as_array().unwrap();
    channels.iter().map(|it| (it["channel"].as_str().unwrap().to_owned(), it["discovered"] == true)).collect()
}

#[tokio::test]
async fn a_channel_that_is_created_while_running_is_delivered_and_stays() {
    let simulator = service().await;
    let setup = discovering(&simulator, 1);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the configured channel arrives", |_| setup.lines() == 10).await;
    simulator.set_listed(1, true);
    daemon.until("the new channel arrives", |_| setup.lines() == 20).await;
    assert_eq!(setup.offsets(&name(1)), deliverable(&simulator, 1));
    let expected = [("c0".to_owned(), false), (name(1), true)];
    assert_eq!(shown(&admin.get("/status").await.json()), expected);
    let effective = setup.tell(&["check", "--effective"]).await;
    let effective = String::from_utf8(effective.out).unwrap();
    assert!(effective.contains("discovered") && effective.contains(&format!("channels.{}.id", name(1))), "{effective}");

    // The second channel disappears from the list, and the third one appears. When the third channel arrives, this
    // list was certainly read.
    simulator.set_listed(1, false);
    simulator.set_listed(2, true);
    simulator.publish(1, 5);
    daemon.until("the third channel arrives, and more of the second", |_| setup.lines() == 35).await;
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    assert_eq!(shown(&admin.get("/status").await.json()).len(), 3);
    simulator.publish(1, 1);
    daemon.until("the second channel continues after a reload", |_| setup.lines() == 36).await;
    let log = daemon.stop().await;
    assert_eq!(log.lines(FOUND).len(), 2, "{}", log.tail());
    assert_eq!(setup.offsets(&name(1)), deliverable(&simulator, 1), "each event once");
}

#[tokio::test]
async fn discovered_channels_run_after_a_restart_without_the_list() {
    let simulator = service().await;
    let setup = discovering(&simulator, 0);
    let mut daemon = setup.start();
    daemon.until("the channel arrives", |_| setup.lines() == 10).await;
    daemon.stop().await;

    simulator.deny(&simulator.announcement().api_key, Route::Channels);
    simulator.publish(0, 5);
    let mut daemon = setup.start();
    daemon.until("the remembered channel continues", |_| setup.lines() == 15).await;
    daemon.stop().await;
    assert_eq!(setup.offsets(&name(0)), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_key_without_the_scope_is_reported_and_stops_nothing() {
    let simulator = service().await;
    let key = simulator.announcement().api_key.clone();
    simulator.set_listed(1, true);
    simulator.deny(&key, Route::Channels);
    let setup = discovering(&simulator, 1);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the configured channel arrives", |_| setup.lines() == 10).await;
    daemon.until_logged(NOT_LISTED).await;
    let report = admin.get("/status").await.json();
    let warning = report["warnings"][0].as_str().unwrap();
    assert!(warning.contains("[discover]") && warning.contains("HTTP 403"), "{warning}");
    let is_ready = |answer: &Answered| answer.status == 200;
    admin.until(&mut daemon, "/readyz", "it is ready", is_ready).await;
    assert_eq!(daemon.log().lines(NOT_LISTED).len(), 1, "it is logged once");

    simulator.set_api_key(&key);
    daemon.until("the other channel arrives as soon as the key may list it", |_| setup.lines() == 20).await;
    let has_no_warning = |answer: &Answered| answer.json()["warnings"].is_null();
    admin.until(&mut daemon, "/status", "the warning ends", has_no_warning).await;
    daemon.stop().await;
}

#[tokio::test]
async fn until_caught_up_does_not_wait_for_channels_whose_configuration_is_rejected() {
    let simulator = service().await;
    let mut setup = discovering(&simulator, 0);
    // The program prints the key only once. The configuration with the new channel is therefore rejected.
    let (key, runs) = (simulator.announcement().api_key.clone(), setup.path("runs"));
    let script = format!("test ! -e {0} && echo >{0} && echo {key}", runs.display());
    setup.remove("api.api_key");
    setup.set("api.api_key_command", json!(["/bin/sh", "-c", script]));
    let ended = setup.start_until_caught_up().ended().await;
    assert_eq!(ended.code, Some(69), "{}", ended.log.tail());
    assert!(
        !ended
            .log
            .lines("files of the configuration changed and cannot be used: the previous ones stay in force")
            .is_empty()
    );
    assert_eq!(setup.lines(), 0);
}

#[tokio::test]
async fn until_caught_up_includes_the_discovered_channels() {
    let simulator = service().await;
    simulator.set_listed(1, true);
    simulator.archive(2);
    simulator.set_listed(2, true);
    let setup = discovering(&simulator, 0);
    let daemon: Daemon = setup.start_until_caught_up();
    assert_eq!(daemon.ended().await.code, Some(0));
    assert_eq!(
        [setup.offsets(&name(0)), setup.offsets(&name(1))].concat().len(),
        20,
        "the archived channel is left out"
    );
}
