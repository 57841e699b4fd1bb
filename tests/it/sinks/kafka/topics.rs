//! Topics: created or only checked, deleted, examined by `check --connect`, and reached through TLS and logins.

use serde_json::json;

use super::{assert_whole, setup};
use crate::sinks::streams::proved;
use crate::support::{Broker, PASSWORD, Setup, Topic, USER, deliverable};

/// Runs the daemon until the topic contains this many events.
async fn deliver_all(topic: &Topic, setup: &Setup, count: usize) {
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(count).await;
    daemon.stop().await;
}

/// Runs `check --connect`. Returns whether it succeeded, and its output.
async fn checked(setup: &Setup) -> (bool, String) {
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    (told.code == Some(0), format!("{}{}", String::from_utf8_lossy(&told.out), told.errors))
}

#[tokio::test]
async fn topics_are_created_if_allowed_and_requested_otherwise() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(5).await);
    let setup = setup(&simulator, &topic).with("sinks.log.create", false).with("sinks.log.partitions", 3);
    let (is_well, said) = checked(&setup).await;
    assert!(!is_well && said.contains(&format!("--create --topic {} --partitions 3", topic.name)), "{said}");
    assert!(said.contains("--partitions 1 --config cleanup.policy=compact"), "{said}");
    let mut daemon = setup.start();
    daemon.until_logged("sink refused: its events wait and will be offered again").await;
    daemon.stop().await;
    assert!(topic.settings(&topic.name).contains("\"partitions\": 0"), "a refused start creates no topic");

    let setup = setup.with("sinks.log.create", true);
    let (is_well, said) = checked(&setup).await;
    assert!(is_well && said.contains("to be created"), "{said}");
    deliver_all(&topic, &setup, 5).await;
    assert!(topic.settings(&topic.name).contains("\"partitions\": 3"));
    let positions = topic.settings(&topic.positions());
    assert!(positions.contains("compact") && positions.contains("\"partitions\": 1"), "{positions}");
    let (is_well, said) = checked(&setup).await;
    assert!(is_well && said.contains("has 3 partitions and accepts records of up to 1048588 bytes"), "{said}");
    assert_whole(&topic, &simulator, &[]);
}

#[tokio::test]
async fn a_topic_that_would_lose_positions_is_refused_with_remedy() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(1).await);
    topic.make_positions(&["cleanup.policy=delete"]);
    let (is_well, said) = checked(&setup(&simulator, &topic)).await;
    assert!(!is_well || said.contains("to be created"), "{said}");
    topic.make(1, &[]);
    let (is_well, said) = checked(&setup(&simulator, &topic)).await;
    assert!(!is_well && said.contains("--add-config cleanup.policy=compact"), "{said}");
}

#[tokio::test]
async fn a_replay_publishes_again_and_a_cursor_moved_back_repeats_nothing() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(20).await);
    let setup = setup(&simulator, &topic).with("api.page_limit", 7);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(20).await;
    let range = ["replay", "--channel", "c0", "--sink", "log", "--from", "3", "--to", "4"];
    assert_eq!(setup.tell(&range).await.code, Some(0));
    topic.until_count(22).await;
    daemon.stop().await;
    let mut expected = [deliverable(&simulator, 0), vec![3, 4]].concat();
    expected.sort_unstable();
    assert_eq!(topic.offsets(), expected);

    let set = ["cursor", "set", "c0", "--sink", "log", "--to", "5", "--yes"];
    assert_eq!(setup.tell(&set).await.code, Some(0));
    simulator.publish(0, 1);
    let mut daemon = setup.start();
    daemon.until_logged("searching the lane's events in the topic").await;
    topic.until_count(23).await;
    daemon.stop().await;
    expected.push(*deliverable(&simulator, 0).last().unwrap());
    assert_eq!(topic.offsets(), expected, "only the new event is produced");
}

#[tokio::test]
async fn a_topic_deleted_while_in_use_gets_nothing_until_an_operator_decides() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(10).await);
    let setup = setup(&simulator, &topic);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(10).await;
    daemon
        .until("the events are recorded", |daemon| {
            daemon.log().lines("batch recorded").iter().any(|line| line["offset"] == 10)
        })
        .await;
    topic.delete();
    simulator.publish(0, 10);
    let words = ["does not exist", "has never had a record", "ends before the record", "ended before the record"];
    daemon.until("the loss is reported", |daemon| words.iter().any(|words| daemon.log().0.contains(words))).await;
    daemon.stop().await;
    assert!(topic.offsets().is_empty());
}

#[tokio::test]
async fn broker_logins_and_certificates_work_and_no_secret_is_shown() {
    let Some(broker) = Broker::shared() else { return };
    let simulator = proved(3).await;
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let topic = broker.topic();
        let mut with = Setup::reading(&simulator).producing(1, &topic, &broker.login());
        with.keep_secret(PASSWORD);
        with.set("sinks.log.security.mechanism", mechanism);
        with.set("sinks.log.security.user", USER);
        with.set("sinks.log.security.password", format!("{PASSWORD}-not"));
        let (is_well, said) = checked(&with).await;
        assert!(!is_well && said.contains("login refused"), "{said}");
        with.set("sinks.log.security.password", PASSWORD);
        let (is_well, said) = checked(&with).await;
        assert!(is_well, "{mechanism}: {said}");
        if mechanism == "scram-sha-512" {
            deliver_all(&topic, &with, 3).await;
        }
    }
    // The broker has a certificate of the private authority, and accepts only clients with a certificate of the same
    // authority.
    let (topic, directory) = (broker.topic(), tempfile::tempdir().unwrap());
    let path = |name: &str| directory.path().join(name);
    let (authority, ca) = broker.authority();
    let [client, key] = authority.issue(&path("client.pem"), &path("client-key.pem"));
    let with = Setup::reading(&simulator).producing(1, &topic, &broker.tls()).with("sinks.log.security.tls", true);
    let (is_well, said) = checked(&with).await;
    assert!(!is_well && said.contains("TLS failed"), "with the authorities of the system: {said}");
    let with = with.with("sinks.log.security.ca_file", json!(ca));
    let (is_well, said) = checked(&with).await;
    assert!(!is_well, "without a client certificate: {said}");
    let with = with.with("sinks.log.security.client_certificate_file", client);
    let with = with.with("sinks.log.security.client_key_file", key);
    let (is_well, said) = checked(&with).await;
    assert!(is_well, "{said}");
    deliver_all(&topic, &with, 3).await;
}
