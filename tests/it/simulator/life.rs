//! Start, announcement and stop of the simulator.

use proof::verify::workflow_owner;
use simulator::{ApiVersion, Fault, Options, Route, Simulator, WatcherStatus};

use super::client::{Client, LONGEST_WAIT, backlog, json, on_each_version, playing};
use crate::support::{Setup, free_address};

on_each_version! {
    channels_and_watchers_are_described,
    wait_watcher_ends_when_the_watcher_is_active_or_failed,
    stopping_frees_the_port_and_closes_connections,
    the_announcement_has_everything_a_client_needs,
}

async fn channels_and_watchers_are_described(version: ApiVersion) {
    let simulator = Simulator::start(Options { channels: 2, ..playing(version) }).await.unwrap();
    let client = Client::of(&simulator);
    let read = async |path: &str| {
        json(&client.get(&format!("/channels/{}{path}", client.channels[1])).await.text().await.unwrap())
    };
    let channel = read("").await;
    let mut members: Vec<_> = channel.as_object().unwrap().keys().collect();
    members.sort();
    assert_eq!(members, ["channel_id", "created_at", "description", "name", "status"]);
    assert_eq!(channel["channel_id"], client.channels[1]);

    let id = simulator.announcement().watchers[1][2];
    let watcher = read(&format!("/watchers/{id}")).await;
    let members: Vec<_> = watcher.as_object().unwrap().keys().map(String::as_str).collect();
    let required =
        ["address", "chain_selector", "channel_id", "created_at", "don_family", "events", "status", "watcher_id"];
    assert!(required.iter().all(|name| members.contains(name)), "{watcher}");
    assert_eq!((&watcher["watcher_id"], &watcher["channel_id"]), (&id.to_string().into(), &channel["channel_id"]));
    assert_eq!(simulator.requests().channel, 1);
}

async fn wait_watcher_ends_when_the_watcher_is_active_or_failed(version: ApiVersion) {
    let options = Options { watcher_status: WatcherStatus::Pending, ..playing(version) };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let [ready, failed] = [0, 1].map(|at| simulator.announcement().watchers[0][at]);
    simulator.fail_next_on(Route::Watcher, Fault::Status(404), 1);
    for (watcher, status, code, said) in [
        (ready, WatcherStatus::Active, 0, "is active"),
        (failed, WatcherStatus::Failed, 1, "is failed and will not become active"),
    ] {
        let before = simulator.requests().watcher;
        let id = watcher.to_string();
        let arguments = ["wait-watcher", "c0", &id, "--interval", "20ms", "--timeout", "30s"];
        let waiting = setup.tell(&arguments);
        let settled = async {
            while simulator.requests().watcher < before + 3 {
                tokio::task::yield_now().await;
            }
            simulator.set_watcher_status(0, watcher, status);
        };
        let (told, ()) = tokio::join!(waiting, settled);
        let text = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
        assert!(told.code == Some(code) && text.contains(said), "{:?}: {text}", told.code);
    }
}

async fn stopping_frees_the_port_and_closes_connections(version: ApiVersion) {
    let listen = free_address();
    let first = Simulator::start(Options { listen, ..backlog(version, 1) }).await.unwrap();
    let client = Client::of(&first);
    client.poll("").await;
    let at = first.announcement().base_url.clone();
    first.fail_next(Fault::Slow(LONGEST_WAIT), 1);
    let path = format!("/channels/{}/events", client.channels[0]);
    let asking = client.try_get(&path);
    let stopping = async {
        while first.requests().poll < 2 {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(LONGEST_WAIT / 2, first.stop()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(asking, stopping);
    assert!(answer.is_err());

    let second = Simulator::start(Options { listen, ..backlog(version, 1) }).await.unwrap();
    assert_eq!(second.announcement().base_url, at);
    assert_eq!(client.poll("").await.offsets, [1]);
    drop(second);
    let gone = async { while client.try_get(&path).await.is_ok() {} };
    tokio::time::timeout(LONGEST_WAIT, gone).await.unwrap();
}

async fn the_announcement_has_everything_a_client_needs(version: ApiVersion) {
    let options = Options { channels: 3, org_id: "org_of_a_test".to_owned(), ..playing(version) };
    let simulator = Simulator::start(options).await.unwrap();
    let known = serde_json::to_value(simulator.announcement()).unwrap();
    assert_eq!(known["channels"].as_array().unwrap().len(), 3);
    assert_eq!(known["watchers"].as_array().unwrap().len(), 3);
    assert_eq!(known["valid_signers"].as_array().unwrap().len(), 10);
    assert_eq!(known["min_required_signatures"], 4);
    assert_eq!(known["workflow_owner"], workflow_owner("org_of_a_test", "1").to_string());
    assert!(known["base_url"].as_str().unwrap().ends_with("/v1"));
}
