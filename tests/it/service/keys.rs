//! API keys expire: the next key is used without a gap, and an operator learns in time what to do.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use simulator::{Options, Route, Simulator};

use crate::support::{Admin, Answered, Daemon, Setup, deliverable, value};

const ANOTHER: &str = "the service refuses an API key: another one is used";
const LEFT: &str = "the service refuses an API key, and no other key is left";
const OPERATOR_MUST_ACT: &str = "failed: an operator must act; retrying";

const KEYS: [&str; 3] = ["key-one-of-a-test", "key-two-of-a-test", "key-three-of-a-test"];

/// A service with two channels that accepts the three keys.
async fn service() -> Simulator {
    let api_keys = KEYS.map(str::to_owned).to_vec();
    Simulator::start(Options { channels: 2, events: 600, api_keys, ..Options::default() }).await.unwrap()
}

/// Replaces the file of a key.
fn put(setup: &Setup, file: &str, key: &str) {
    let (new, path) = (setup.path(&format!("{file}.new")), setup.path(file));
    std::fs::write(&new, format!("{key}\n")).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Uses the first two keys, from files, and reads short pages, so that many polls are necessary.
fn with_two_keys(simulator: &Simulator) -> Setup {
    let mut setup = Setup::reading(simulator).with_admin().with("api.page_limit", 10);
    for key in KEYS {
        setup.keep_secret(key);
    }
    let files = ["key", "next-key"];
    files.iter().zip(KEYS).for_each(|(file, key)| put(&setup, file, key));
    setup.remove("api.api_key");
    setup.set("api.api_key_files", json!(files.map(|file| setup.path(file).display().to_string())));
    setup
}

/// The numbers of the keys that the log reports in these messages.
fn reported(daemon: &Daemon, message: &str) -> Vec<Value> {
    daemon.log().lines(message).into_iter().map(|line| line["key"].clone()).collect()
}

#[tokio::test]
async fn two_keys_rotate_under_load_without_a_failed_poll() {
    let simulator = service().await;
    let setup = with_two_keys(&simulator);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("some events arrive", |_| setup.lines() > 100).await;
    simulator.revoke_api_key(KEYS[0]);
    (0..2).for_each(|channel| simulator.publish(channel, 200));
    daemon.until("the backlog arrives with the second key", |_| setup.lines() == 1_600).await;
    daemon.until_logged(ANOTHER).await;
    assert_eq!(reported(&daemon, ANOTHER), [1]);
    let report = admin.get("/status").await.json();
    let warnings = report["warnings"].as_array().unwrap();
    assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().contains("API key 1 of 2"), "{warnings:?}");
    assert_eq!((&report["ready"], &report["api_keys"][0]["is_refused"]), (&json!(true), &json!(true)));
    assert_eq!(admin.sample("channeld_api_keys_refused").await, Some(1.0));
    assert_eq!(admin.get("/readyz").await.status, 200);
    let shown = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(shown.contains("warning: the service refuses API key 1 of 2"), "{shown}");

    put(&setup, "key", KEYS[2]);
    daemon.until_logged("files of the configuration changed: reloaded").await;
    let is_used =
        |answer: &Answered| answer.json()["api_keys"][0]["was_accepted"] == true && answer.json()["warnings"].is_null();
    admin.until(&mut daemon, "/status", "the new key is used", is_used).await;
    let polls = simulator.requests().poll;
    daemon.until("each channel uses the new key", |_| simulator.requests().poll > polls + 40).await;
    simulator.revoke_api_key(KEYS[1]);
    (0..2).for_each(|channel| simulator.publish(channel, 200));
    daemon.until("everything arrives with the third key", |_| setup.lines() == 2_000).await;

    let scrape = admin.get("/metrics").await.text;
    for channel in ["c0", "c1"] {
        let refused =
            format!(r#"channeld_api_requests_total{{channel="{channel}",endpoint="poll",outcome="refused"}}"#);
        assert!(value(&scrape, &refused).is_none_or(|times| times < 1.0), "{scrape}");
    }
    assert_eq!(value(&scrape, "channeld_api_keys_refused"), Some(0.0), "the second key was not needed again");
    let log = daemon.stop().await;
    assert!(log.at("ERROR").is_empty() && log.lines(OPERATOR_MUST_ACT).is_empty(), "{}", log.tail());
    for (number, channel) in ["c0", "c1"].into_iter().enumerate() {
        assert_eq!(setup.offsets(channel), deliverable(&simulator, number));
    }
}

#[tokio::test]
async fn a_refused_key_is_tried_again_after_a_reload() {
    let simulator = service().await;
    let setup = with_two_keys(&simulator);
    simulator.revoke_api_key(KEYS[0]);
    setup.write();
    let checked = setup.tell(&["check", "--connect", "--json"]).await;
    let checked: Value = serde_json::from_slice(&checked.out).unwrap();
    let of_keys: Vec<_> = checked["asked"].as_array().unwrap().iter().filter(|it| it["what"] == "API key").collect();
    assert_eq!(of_keys.iter().map(|key| &key["ok"]).collect::<Vec<_>>(), [false, true], "{checked:#}");

    let mut daemon = setup.start();
    daemon.until_logged(ANOTHER).await;
    daemon.until("the backlog arrives", |_| setup.lines() == 1_200).await;
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    daemon.until("the first key is refused again", |daemon| reported(daemon, ANOTHER) == [1, 1]).await;
    daemon.stop().await;
}

#[tokio::test]
async fn if_every_key_is_refused_channels_wait_and_recover_by_themselves() {
    let simulator = service().await;
    let setup = with_two_keys(&simulator);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the backlog arrives", |_| setup.lines() == 1_200).await;
    for key in KEYS {
        simulator.revoke_api_key(key);
    }
    let is_refused = |answer: &Answered| answer.status == 503 && answer.text.contains("HTTP 401");
    admin.until(&mut daemon, "/readyz", "it is not ready", is_refused).await;
    daemon.until("both keys are reported", |daemon| daemon.has_logged(LEFT)).await;
    assert_eq!(admin.sample("channeld_api_keys_refused").await, Some(2.0));

    simulator.set_api_key(KEYS[1]);
    simulator.publish(0, 1);
    daemon.until("reading continues", |_| setup.lines() == 1_201).await;
    let is_ready = |answer: &Answered| answer.status == 200;
    admin.until(&mut daemon, "/readyz", "it is ready", is_ready).await;
    let one_works = |answer: &Answered| value(&answer.text, "channeld_api_keys_refused") == Some(1.0);
    admin.until(&mut daemon, "/metrics", "the second key is accepted again", one_works).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_key_that_expires_soon_is_a_warning_and_the_daemon_stays_ready() {
    const DAY: i64 = 24 * 3600;
    let simulator = Simulator::start(Options { events: 1, ..Options::default() }).await.unwrap();
    let expires = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + 3 * DAY + 3600).unwrap();
    let setup = Setup::reading(&simulator).with_admin().with("api.api_key_expires", expires.to_string());
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the event arrives", |_| setup.lines() == 1).await;
    let is_ready = |answer: &Answered| answer.status == 200;
    admin.until(&mut daemon, "/readyz", "it is ready", is_ready).await;
    let report = admin.get("/status").await.json();
    let warning = report["warnings"][0].as_str().unwrap();
    assert!(report["ready"] == true && warning.contains("the API key expires in 3 days, at "), "{report:#}");
    let left = admin.sample("channeld_api_key_expires_seconds").await.unwrap();
    assert!((259_200.0..=262_800.0).contains(&left), "{left}");
    let log = daemon.stop().await;
    let said = log.at("WARN").into_iter().filter(|line| line.to_string().contains("expires in 3 days")).count();
    assert_eq!(said, 1, "{}", log.tail());
    let checked = setup.tell(&["check"]).await;
    let notes = String::from_utf8_lossy(&checked.out).into_owned() + &checked.errors;
    assert!(checked.code == Some(0) && notes.contains("expires in 3 days"), "{checked:?}");
}

#[tokio::test]
async fn a_key_without_the_scope_is_reported_with_the_scope() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let key = simulator.announcement().api_key.clone();
    simulator.deny(&key, Route::Poll);
    setup.write();
    let told = setup.tell(&["check", "--connect", "--json"]).await;
    let said = String::from_utf8(told.out).unwrap();
    assert!(told.code == Some(69) && said.contains("lacks the scope crec:event:read"), "{said}");

    let mut daemon = setup.start();
    daemon.until("the error is logged", |daemon| !daemon.log().lines(OPERATOR_MUST_ACT).is_empty()).await;
    let error = daemon.log().lines(OPERATOR_MUST_ACT)[0]["error"].as_str().unwrap().to_owned();
    for words in ["HTTP 403", "PERMISSION_DENIED", "lacks the scope crec:event:read", "use a key that has it"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    simulator.set_api_key(&key);
    daemon.until("events arrive", |_| setup.lines() == 3).await;
    daemon.stop().await;
}
