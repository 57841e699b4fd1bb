//! The differences between the versions of the API, and the daemon with each of them.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use simulator::{ApiVersion, EventSpec, Honesty, Kind, Options, Simulator, WatcherConfidence};

use super::client::{Client, json, on_each_version, playing};
use crate::support::{Setup, deliverable};

on_each_version! {
    events_differ_between_versions,
    lists_of_channels_and_networks_exist_in_newer_versions,
    the_daemon_reads_every_kind_of_event,
    channels_can_be_discovered_and_chosen_only_where_they_are_listed,
    finality_limits_apply_to_every_version,
}

/// The decoded signed text of a record.
fn signed(record: &str) -> Option<Value> {
    let payload = json(record)["payload"].take();
    let text = payload["verifiable_event"].as_str().or(payload["verifiable_result"].as_str())?;
    Some(serde_json::from_slice(&BASE64_STANDARD.decode(text).unwrap()).unwrap())
}

async fn events_differ_between_versions(version: ApiVersion) {
    let is_newest = version == ApiVersion::V0_8_0;
    let simulator = Simulator::start(playing(version)).await.unwrap();
    let client = Client::of(&simulator);
    for (kind, status, verdict) in [
        (Kind::OperationReverted, if is_newest { "reverted" } else { "failed" }, is_newest),
        (Kind::QueryFailed, "failed", is_newest),
        (Kind::QueryNotSent, "failed", false),
        (Kind::OperationFailed, "failed", false),
    ] {
        simulator.publish_one(0, EventSpec::Honest(kind));
        let record = client.poll("limit=1").await.records.remove(0);
        let is_verified = client.verify(&record).name() == "verified";
        assert_eq!((&json(&record)["payload"]["status"], is_verified), (&json!(status), verdict), "{kind:?}");
        assert_eq!(signed(&record).is_some(), is_verified, "{kind:?}");
        if kind == Kind::QueryFailed && is_newest {
            assert!(signed(&record).unwrap()["data"]["error"].is_object());
        }
    }
    simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
    let record = client.poll("limit=1").await.records.remove(0);
    let confidence = signed(&record).unwrap()["chain_event"]["confidence"].take();
    assert_eq!(confidence.is_string(), version != ApiVersion::V0_4_0, "{confidence}");

    let watcher = simulator.announcement().watchers[0][0];
    let watcher = client.get(&format!("/channels/{}/watchers/{watcher}", client.channels[0])).await;
    assert_eq!(json(&watcher.text().await.unwrap())["confidence_level"].is_string(), is_newest);
}

async fn lists_of_channels_and_networks_exist_in_newer_versions(version: ApiVersion) {
    let simulator = Simulator::start(Options { channels: 5, ..playing(version) }).await.unwrap();
    let client = Client::of(&simulator);
    if version == ApiVersion::V0_4_0 {
        for path in ["/channels", "/networks"] {
            assert_eq!(client.get(path).await.status(), 404);
        }
        return;
    }
    simulator.archive(4);
    let read = async |path: &str| json(&client.get(path).await.text().await.unwrap());
    let (first, last) = (read("/channels?limit=2").await, read("/channels?limit=3&offset=2").await);
    assert_eq!((&first["has_more"], &last["has_more"]), (&json!(true), &json!(false)));
    let listed = [&first, &last].into_iter().flat_map(|page| page["channels"].as_array().unwrap());
    let listed: Vec<_> = listed.map(|channel| (channel["channel_id"].clone(), channel["status"].clone())).collect();
    let status = |at: usize| json!(if at == 4 { "archived" } else { "active" });
    let all: Vec<_> = client.channels.iter().enumerate().map(|(at, id)| (json!(id), status(at))).collect();
    assert_eq!(listed, all);
    for name in ["name", "description", "created_at"] {
        assert!(first["channels"][0][name].is_string(), "{first}");
    }
    assert_eq!(read("/channels?offset=9").await, json!({"channels": [], "has_more": false}));
    assert_eq!(client.get("/channels?limit=201").await.status(), 400);

    let networks = read("/networks").await;
    let networks = networks["networks"].as_array().unwrap();
    let base = json!({
        "name": "Base", "chain_selector": "15971525489660198786", "chain_id": "8453", "chain_family": "evm",
        "type": "mainnet", "default_confidence_level": "finalized"
    });
    assert!(networks.len() == 10 && networks.contains(&base), "{networks:?}");
    assert_eq!((simulator.requests().channels, simulator.requests().networks), (4, 1));
}

async fn the_daemon_reads_every_kind_of_event(version: ApiVersion) {
    let simulator = Simulator::start(playing(version)).await.unwrap();
    let late = Kind::ALL.into_iter().filter(|kind| kind.is_signed()).map(EventSpec::Late);
    for spec in Kind::ALL.map(EventSpec::Honest).into_iter().chain(late) {
        simulator.publish_one(0, spec);
    }
    let truth: BTreeMap<i64, Honesty> = simulator.offsets(0).into_iter().collect();
    let pending: Vec<_> =
        truth.iter().filter(|(_, honesty)| **honesty == Honesty::Pending).map(|(offset, _)| *offset).collect();
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    let (all, first) = (truth.len(), truth.len() - pending.len());
    daemon.until("every event that needs no further proof is delivered", |_| setup.lines() == first).await;
    for offset in pending {
        simulator.prove(0, offset);
    }
    daemon.until("the pending events are delivered", |_| setup.lines() == all).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    daemon.stop().await;

    for event in setup.delivered() {
        let expected = if truth[&event.offset] == Honesty::Unsigned { "unsigned" } else { "verified" };
        assert_eq!(event.status(), expected, "{}", event.json);
    }
    let unknown = report["channels"][0]["unknown_values"].as_array().unwrap();
    let unknown: Vec<_> = unknown.iter().map(|value| (&value["what"], &value["value"])).collect();
    assert_eq!(unknown, [(&json!("type"), &json!("policy.status"))], "everything else is documented");
}

async fn channels_can_be_discovered_and_chosen_only_where_they_are_listed(version: ApiVersion) {
    let simulator = Simulator::start(Options { channels: 2, events: 5, ..playing(version) }).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("discover.channels", "all").with("discover.sinks", json!(["file"]));
    setup.remove("channels.c1");
    setup.write();
    let is_listed = version != ApiVersion::V0_4_0;
    let told = setup.tell(&["channels", "list", "--json"]).await;
    if is_listed {
        assert_eq!(told.each("configured"), [json!("c0"), Value::Null]);
    } else {
        assert!(told.code != Some(0) && told.errors.contains("HTTP 404"), "{told:?}");
    }
    let mut daemon = setup.start();
    let missing = "the organization's channels cannot be listed: no new channel is added";
    daemon
        .until("every channel that is known is delivered", |daemon| {
            if is_listed { setup.lines() == 10 } else { setup.lines() == 5 && daemon.has_logged(missing) }
        })
        .await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

async fn finality_limits_apply_to_every_version(version: ApiVersion) {
    let options = Options { confidence: WatcherConfidence::Finalized, ..playing(version) };
    let simulator = Simulator::start(options).await.unwrap();
    for kind in [Kind::WatcherEvent, Kind::OperationConfirmed, Kind::QueryCompleted] {
        simulator.publish_one(0, EventSpec::Honest(kind));
    }
    let setup = Setup::reading(&simulator).with("sinks.file.filter.min_confidence", "finalized");
    let daemon = setup.start_until_caught_up();
    assert_eq!(daemon.ended().await.code, Some(0));
    // Watcher events have no confidence in the oldest version.
    let expected = if version == ApiVersion::V0_4_0 { vec![2, 3] } else { vec![1, 2, 3] };
    assert_eq!(setup.offsets("c0"), expected);
}
