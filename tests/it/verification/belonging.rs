//! A proof belongs to one channel: the signed content is compared with the workflows, chains and contracts that the
//! channel expects.

use proof::event::Offset;
use serde_json::Value;
use simulator::{EventSpec, Kind, Options, ReplayedId, Simulator};

use super::PROVED;
use crate::support::{Daemon, Setup, deliverable};

const RESULT: EventSpec = EventSpec::Honest(Kind::QueryCompleted);
const REJECTED: &str = "event rejected: not delivered";

pub(super) async fn service(channels: usize) -> Simulator {
    Simulator::start(Options { channels, ..Options::default() }).await.unwrap()
}

/// The ids of the workflows that create the reports of a channel.
pub(super) fn workflows(simulator: &Simulator, channel: usize) -> Vec<String> {
    simulator.workflow_ids(channel).iter().map(ToString::to_string).collect()
}

/// The offsets and reasons of the quarantined events of a channel.
pub(super) async fn quarantined(setup: &Setup, simulator: &Simulator, channel: usize) -> Vec<(i64, String)> {
    let ledger = setup.ledger(simulator.announcement().channels[channel]).await;
    ledger.quarantined().iter().map(|(key, facts)| (key.offset.get(), facts.reason.clone())).collect()
}

pub(super) async fn until_lines(daemon: &mut Daemon, lines: usize, setup: &Setup) {
    daemon.until(&format!("{lines} lines"), |_| setup.lines() >= lines).await;
}

pub(super) async fn until_rejected(daemon: &mut Daemon, events: usize) {
    daemon.until(&format!("{events} rejected"), |daemon| daemon.log().lines(REJECTED).len() >= events).await;
}

pub(super) async fn status(setup: &Setup) -> Value {
    setup.tell(&["status", "--json"]).await.json().remove(0)
}

#[tokio::test]
async fn a_record_names_the_workflow_and_execution_of_the_report() {
    let simulator = service(1).await;
    let setup = Setup::reading(&simulator);
    simulator.publish_one(0, PROVED);
    setup.run_until_lines(1).await;

    let record = setup.delivered().remove(0);
    let event: Value = serde_json::from_str(record.event.get()).unwrap();
    assert_eq!(record.verification["workflow_id"], event["payload"]["workflow_id"]);
    assert_eq!(record.verification["execution_id"], event["payload"]["workflow_execution_id"]);
    assert!(workflows(&simulator, 0).contains(&record.verification["workflow_id"].as_str().unwrap().to_owned()));
}

#[tokio::test]
async fn a_query_result_in_a_foreign_channel_is_rejected_and_its_own_channel_delivers_it() {
    let simulator = service(2).await;
    let mut setup = Setup::reading(&simulator);
    simulator.publish_one(0, RESULT);
    simulator.replay(0, 1, 1, ReplayedId::New);
    simulator.publish_one(1, RESULT);
    setup.remove("channels.c0");
    setup.run_until_lines(1).await;
    setup.set("channels.c0.id", simulator.announcement().channels[0].to_string());
    setup.set("channels.c0.sinks", vec!["file"]);
    setup.run_until_lines(2).await;

    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), (vec![1], vec![2]));
    assert_eq!(quarantined(&setup, &simulator, 0).await, []);
    let facts = setup.quarantined(simulator.announcement().channels[1], Offset::new(1).unwrap()).await;
    let [own, other] = [0, 1].map(|channel| simulator.announcement().channels[channel]);
    assert_eq!(facts.reason, "other-channel");
    assert_eq!(facts.detail, format!("the signed result is of channel {own}, and not of {other}"));
}

#[tokio::test]
async fn a_pinned_channel_rejects_foreign_events_and_their_own_channel_delivers_them_later() {
    let simulator = service(2).await;
    let mut setup = Setup::reading(&simulator).with("channels.c1.expect.workflow_id", workflows(&simulator, 1));
    for offset in 1..=20 {
        simulator.publish_one(0, PROVED);
        simulator.replay(0, offset, 1, ReplayedId::New);
        simulator.publish_one(1, PROVED);
    }
    setup.remove("channels.c0");
    setup.run_until_lines(20).await;
    setup.set("channels.c0.id", simulator.announcement().channels[0].to_string());
    setup.set("channels.c0.sinks", vec!["file"]);
    setup.run_until_lines(40).await;

    let own: Vec<_> = (1..=20).map(|number| 2 * number).collect();
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), ((1..=20).collect(), own));
    assert_eq!(
        quarantined(&setup, &simulator, 0).await,
        [],
        "the rejected copies do not count as the first appearance of the proofs"
    );
    let stolen = quarantined(&setup, &simulator, 1).await;
    assert!(stolen.iter().map(|(offset, _)| *offset).eq((1..=20).map(|number| 2 * number - 1)), "{stolen:?}");
    assert!(stolen.iter().all(|(_, reason)| reason == "unexpected-workflow"));
    let facts = setup.quarantined(simulator.announcement().channels[1], Offset::new(1).unwrap()).await;
    for value in [&setup.delivered()[20].verification["workflow_id"], &workflows(&simulator, 1)[0].clone().into()] {
        assert!(facts.detail.contains(value.as_str().unwrap()), "the detail contains both values: {}", facts.detail);
    }
}

#[tokio::test]
async fn expected_values_match_in_any_case_with_or_without_0x() {
    let simulator = service(1).await;
    let upper: Vec<_> = workflows(&simulator, 0).iter().map(|id| id[2..].to_uppercase()).collect();
    let setup = Setup::reading(&simulator).with("channels.c0.expect.workflow_id", upper);
    simulator.publish(0, 20);
    setup.run_until_lines(20).await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_wrong_pin_loses_nothing_and_the_corrected_pin_delivers_everything_in_order() {
    let simulator = service(1).await;
    let mut setup = Setup::reading(&simulator);
    simulator.publish_one(0, PROVED);
    setup.run_until_lines(1).await;
    setup.set("channels.c0.expect.workflow_id", vec!["ab".repeat(32)]);
    simulator.publish(0, 20);
    let mut daemon = setup.start();
    until_rejected(&mut daemon, 20).await;
    daemon.until_logged("batch recorded").await;
    let seen = status(&setup).await;
    assert_eq!(seen["ready"], false);
    let reason = seen["reasons"][0].as_str().unwrap();
    assert!(reason.contains("15 events were rejected (unexpected-workflow)") && reason.contains("expect"), "{reason}");

    setup.set("channels.c0.expect.workflow_id", workflows(&simulator, 0));
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    let retried = setup.tell(&["quarantine", "retry", "c0", "--all"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until_lines(&mut daemon, 21, &setup).await;
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 22, &setup).await;
    assert_eq!(status(&setup).await["reasons"], serde_json::json!([]));
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), (1..=22).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_wrong_pin_of_a_new_channel_fills_no_quarantine() {
    let simulator = service(1).await;
    let mut setup = Setup::reading(&simulator).with("channels.c0.expect.name", vec!["NeverEmitted"]);
    simulator.publish(0, 20);
    let mut daemon = setup.start();
    daemon.until_logged("failed: an operator must act; retrying").await;
    let reason = status(&setup).await["reasons"][0].clone();
    assert!(reason.as_str().unwrap().contains("unexpected-name"), "{reason}");
    setup.remove("channels.c0.expect");
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    until_lines(&mut daemon, 20, &setup).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), (1..=20).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_redeployed_workflow_is_rejected_by_its_pin_until_one_command_accepts_it() {
    let simulator = service(1).await;
    let setup = Setup::reading(&simulator).with("channels.c0.expect.workflow_id", workflows(&simulator, 0));
    simulator.publish_one(0, PROVED);
    setup.run_until_lines(1).await;
    simulator.redeploy(0);
    simulator.publish_one(0, PROVED);
    let mut daemon = setup.start();
    until_rejected(&mut daemon, 1).await;
    daemon.until_logged("batch recorded").await;
    let told =
        setup.tell(&["channels", "pin", "c0", "--list", "workflow_id", "--apply", "--json"]).await.json().remove(0);
    assert_eq!((told["rejected_now"].clone(), told["rejected"].clone()), (1.into(), serde_json::json!([])), "{told}");
    assert_eq!(told["applied"]["retried"], serde_json::json!([{"offset": 2, "fate": "delivering"}]), "{told}");
    until_lines(&mut daemon, 2, &setup).await;
    daemon.stop().await;
}

#[tokio::test]
async fn proposed_lists_contain_the_channels_own_events_and_watchers_only() {
    let simulator = service(2).await;
    let setup = Setup::reading(&simulator);
    simulator.publish(0, 150);
    simulator.publish_one(1, PROVED);
    let stolen = simulator.replay(1, 1, 0, ReplayedId::New);
    setup.write();
    let file = setup.path("channeld.toml");
    let before = format!("# mine\n{}", std::fs::read_to_string(&file).unwrap());
    std::fs::write(&file, &before).unwrap();

    let shown = setup.tell(&["channels", "pin", "c0"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "without --write, the file stays unchanged");
    let told = setup.tell(&["channels", "pin", "c0", "--write", "--json"]).await.json().remove(0);
    let rejected = told["rejected"].as_array().unwrap();
    assert_eq!((rejected.len(), rejected[0]["offset"].clone()), (1, stolen.into()), "{told}");
    let mut listed = told["expect"]["workflow_id"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
    let mut own = workflows(&simulator, 0);
    own.sort();
    assert!(listed.by_ref().eq(own), "{told}");
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(after.starts_with("# mine\n") && after.contains("channels.c0.expect.workflow_id = ["), "{after}");
    let checked = setup.tell(&["check", "--json"]).await.json().remove(0);
    assert_eq!(checked["channels"][0]["expect"], told["expect"]);
    assert_eq!(setup.tell(&["channels", "pin", "c7"]).await.code, Some(64));
}
