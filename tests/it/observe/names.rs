//! Watchers are shown with the names that the service gives them, and nothing depends on these names.

use serde_json::Value;
use simulator::{Options, Route, Simulator};

use crate::support::{Admin, Answered, Setup, serving, signed};

/// The watchers of the only channel in the status.
fn watchers(answer: &Answered) -> Vec<Value> {
    answer.json()["channels"][0]["watchers"].as_array().cloned().unwrap_or_default()
}

#[tokio::test]
async fn the_status_names_the_watchers_of_a_channel_and_their_networks() {
    let simulator = Simulator::start(Options { events: 300, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with_admin().with("api.page_limit", 10);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let is_named = |answer: &Answered| watchers(answer).iter().any(|watcher| watcher["name"].is_string());
    let answer = admin.until(&mut daemon, "/status", "a watcher has its name", is_named).await;
    for watcher in watchers(&answer).iter().filter(|watcher| watcher["name"].is_string()) {
        assert!(watcher["name"].as_str().unwrap().ends_with(" watcher"), "{watcher}");
        let id = watcher["watcher_id"].as_str().unwrap().parse().unwrap();
        assert!(simulator.announcement().watchers[0].contains(&id), "{watcher}");
        assert!(watcher["network"].is_string(), "{watcher}");
    }
    daemon.until("the list of networks was requested", |_| simulator.requests().networks == 1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_network_that_only_the_service_knows_has_the_name_that_the_service_lists() {
    let decoded = r#"{"name":"Transfer","service":"dvp","chain_selector":"1"}"#;
    let (service, setup) = serving((1..=300).map(|offset| signed(offset, decoded)).collect()).await;
    service.list_networks(r#"{"networks":[{"name":"A New Chain","chain_selector":"1"}]}"#);
    let setup = setup.with_admin().with("api.page_limit", 10);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let is_named = |answer: &Answered| watchers(answer).iter().any(|watcher| watcher["network"] == "A New Chain");
    admin.until(&mut daemon, "/status", "the network has its name", is_named).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_key_that_may_not_read_names_delivers_everything() {
    let simulator = Simulator::start(Options { events: 20, ..Options::default() }).await.unwrap();
    let key = simulator.announcement().api_key.clone();
    for route in [Route::Networks, Route::Watcher] {
        simulator.deny(&key, route);
    }
    let setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let were_asked = || simulator.requests().networks > 0 && simulator.requests().watcher > 0;
    daemon.until("the names were refused", |_| were_asked() && setup.lines() == 20).await;
    simulator.publish(0, 5);
    daemon.until("new events arrive", |_| setup.lines() == 25).await;
    let is_ready = |answer: &Answered| answer.status == 200;
    admin.until(&mut daemon, "/readyz", "it is ready", is_ready).await;
    assert!(admin.get("/status").await.json()["warnings"].is_null());
    let log = daemon.stop().await;
    assert!(log.at("ERROR").is_empty(), "{}", log.tail());
}
