//! Starting, telling, stopping.

use channeld::simulator::{Fault, Options, Simulator};
use channeld::verify::workflow_owner;

use super::client::{Client, LONGEST_WAIT, backlog, json};

#[tokio::test]
async fn watchers_have_the_status_that_a_test_sets() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let client = Client::of(&simulator);
    let id = simulator.watchers(0)[1];
    let read = async || {
        json(&client.get(&format!("/channels/{}/watchers/{id}", client.channels[0])).await.text().await.unwrap())
    };
    assert_eq!(read().await["status"], "active");
    simulator.set_watcher_status(0, id, "failed");
    let watcher = read().await;
    assert_eq!((&watcher["status"], &watcher["watcher_id"]), (&"failed".into(), &id.to_string().into()));
}

#[tokio::test]
async fn stopping_or_dropping_frees_the_port_and_cuts_what_is_open() {
    let first = Simulator::start(backlog(1)).await.unwrap();
    let client = Client::of(&first);
    client.poll("").await;
    let at = first.announcement().base_url.clone();
    let listen = at.trim_start_matches("http://").trim_end_matches("/v1").parse().unwrap();
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

    let second = Simulator::start(Options { listen, ..backlog(1) }).await.unwrap();
    assert_eq!(second.announcement().base_url, at);
    assert_eq!(client.poll("").await.offsets, [1]);
    drop(second);
    let gone = async { while client.try_get(&path).await.is_ok() {} };
    tokio::time::timeout(LONGEST_WAIT, gone).await.unwrap();
}

#[tokio::test]
async fn the_announcement_is_what_a_client_needs() {
    let options = Options { channels: 3, org_id: "org_of_a_test".to_owned(), ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let known = serde_json::to_value(simulator.announcement()).unwrap();
    assert_eq!(known["channels"].as_array().unwrap().len(), 3);
    assert_eq!(known["valid_signers"].as_array().unwrap().len(), 10);
    assert_eq!(known["min_required_signatures"], 4);
    assert_eq!(known["workflow_owner"], workflow_owner("org_of_a_test", "1").to_string());
    assert!(known["base_url"].as_str().unwrap().ends_with("/v1"));
}
