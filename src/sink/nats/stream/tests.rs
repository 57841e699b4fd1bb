use serde_json::json;

use super::*;
use crate::settings::Login;

fn settings() -> NatsSettings {
    NatsSettings {
        servers: vec!["nats://127.0.0.1:4222".parse().unwrap()],
        login: Login::None,
        authorities: None,
        identity: None,
        stream: "bus".to_owned(),
        subject: "channeld.{channel}.{type}".parse().unwrap(),
        positions: "positions".to_owned(),
        create: true,
        replicas: 3,
        timeout: std::time::Duration::from_secs(1),
    }
}

/// A stream with the settings of `wanted`, except for one setting.
fn with(name: &str, value: Value) -> Stream {
    let mut config = wanted(&settings(), "2.12.0");
    config[name] = value;
    serde_json::from_value(json!({"config": config})).unwrap()
}

#[test]
fn a_created_stream_is_usable() {
    let facts = facts(with("name", json!("bus")), &settings(), "2.12.0").unwrap();
    assert!(facts.batches && facts.rollups && facts.max_size.is_none());
    assert!(facts.takes("channeld.one.watcher.event") && facts.takes("positions.id.sink") && !facts.takes("other"));
    let said = summary(&facts, &settings(), "2.12.0");
    assert!(said.ends_with("exactly once, in atomic batches"), "{said}");
    assert!(wanted(&settings(), "2.11.3").get("allow_atomic").is_none(), "an older server would refuse the setting");
}

#[test]
fn an_unsafe_stream_is_refused_with_remedy() {
    let cases = [
        ("subjects", json!(["channeld.>"]), "positions.>"),
        ("retention", json!("interest"), "must be limits"),
        ("retention", json!("workqueue"), "must be limits"),
        ("sealed", json!(true), "name a stream"),
        ("no_ack", json!(true), "name a stream"),
        ("mirror", json!({"name": "other"}), "name a stream"),
        ("subject_transform", json!({"src": "", "dest": "copy.>"}), "subject_transform"),
        ("subject_transform", json!({"src": "positions.>", "dest": "other.>"}), "subject_transform"),
        ("subject_transform", json!({"src": "channeld.*.a", "dest": "a.$1"}), "subject_transform"),
        ("allow_msg_counter", json!(true), "name another stream"),
    ];
    for (name, value, expected) in cases {
        let error = facts(with(name, value), &settings(), "2.12.0").expect_err(name);
        assert!(error.contains(expected), "{name}: {error}");
    }
    let error = facts(with("name", json!("bus")), &settings(), "2.9.10").expect_err("too old");
    assert!(error.contains("NATS 2.9.10") && error.contains("2.12"), "{error}");
}

#[test]
fn a_stream_without_batches_or_all_subjects_is_used_with_a_warning() {
    for (stream, version, expected) in [
        (with("allow_atomic", json!(false)), "2.15.1", "allow it atomic batches"),
        (with("name", json!("bus")), "2.11.0", "NATS 2.12 has"),
        (with("subjects", json!(["channeld.one.>", "positions.>"])), "2.12.1", "would be refused"),
    ] {
        let facts = facts(stream, &settings(), version).unwrap();
        let said = summary(&facts, &settings(), version);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_transformation_of_other_subjects_is_accepted() {
    let other = with("subject_transform", json!({"src": "orders.>", "dest": "old.>"}));
    assert!(facts(other, &settings(), "2.12.0").is_ok());
}

#[test]
fn a_stream_that_refuses_further_positions_is_refused() {
    let mut config = wanted(&settings(), "2.12.0");
    (config["discard"], config["max_msgs_per_subject"]) = (json!("new"), json!(1));
    let stream = |config: &Value| serde_json::from_value(json!({"config": config})).unwrap();
    assert!(facts(stream(&config), &settings(), "2.12.0").is_ok());
    config["discard_new_per_subject"] = json!(true);
    let error = facts(stream(&config), &settings(), "2.12.0").unwrap_err();
    assert!(error.contains("discard_new_per_subject"), "{error}");
}

#[test]
fn a_stream_that_acknowledges_before_its_disk_is_named() {
    for (stream, expected) in [
        (with("storage", json!("memory")), Some("in the memory of the server")),
        (with("persist_mode", json!("async")), Some("before they are in its file")),
        (with("persist_mode", json!("default")), None),
    ] {
        let early_ack = facts(stream, &settings(), "2.12.0").unwrap().early_ack;
        assert_eq!(early_ack.is_some(), expected.is_some());
        assert!(early_ack.unwrap_or_default().contains(expected.unwrap_or_default()));
    }
}

#[test]
fn the_limits_delete_only_messages_before_the_first() {
    let limited = |first_seq: u64| {
        let mut config = wanted(&settings(), "2.12.0");
        config["max_age"] = json!(1_000_000_000);
        let stream = serde_json::from_value(json!({"config": config, "state": {"first_seq": first_seq}})).unwrap();
        facts(stream, &settings(), "2.12.0").unwrap()
    };
    // The sequence number 0 stands for a position that this process has not written.
    for (first_seq, sequence, expected) in
        [(1, 0, false), (5, 0, true), (5, 4, true), (5, 5, false), (5, 1_000, false), (0, 0, false)]
    {
        assert_eq!(limited(first_seq).has_dropped(sequence), expected, "{first_seq} {sequence}");
    }
    let unlimited = with("name", json!("bus"));
    assert!(!facts(unlimited, &settings(), "2.12.0").unwrap().has_dropped(0));
}
