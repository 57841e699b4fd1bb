use super::*;
use crate::Security;

fn settings() -> KafkaSettings {
    KafkaSettings {
        brokers: vec!["kafka:9092".to_owned()],
        security: Security::default(),
        topic: "events".to_owned(),
        positions_topic: "positions".to_owned(),
        transactional_id: "channeld".to_owned(),
        create: false,
        partitions: 6,
        replicas: 0,
        timeout: Duration::from_secs(1),
    }
}

fn topic(settings: &[(&str, &str)]) -> Topic {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Topic { partitions: 3, settings }
}

#[test]
fn a_missing_topic_is_reported_with_its_command() {
    let both = facts([None, None], &settings()).unwrap_err();
    assert!(both.contains("--create --topic events --partitions 6;"), "{both}");
    assert!(both.ends_with("--create --topic positions --partitions 1 --config cleanup.policy=compact"), "{both}");
    let one = facts([Some(topic(&[])), None], &settings()).unwrap_err();
    assert!(
        one.starts_with("the topic positions is missing") && one.contains("--bootstrap-server kafka:9092"),
        "{one}"
    );
}

#[test]
fn an_unsafe_positions_topic_is_refused_with_remedy() {
    for (name, value) in [
        ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact,delete"),
        ("compression.type", "gzip"),
        ("compression.type", "zstd"),
    ] {
        let error = facts([Some(topic(&[])), Some(topic(&[(name, value)]))], &settings()).unwrap_err();
        assert!(error.contains(value) && error.contains("--entity-name positions --add-config"), "{error}");
    }
    for (name, value) in [("cleanup.policy", "compact"), ("compression.type", "lz4")] {
        assert!(facts([Some(topic(&[])), Some(topic(&[(name, value)]))], &settings()).is_ok());
    }
}

#[test]
fn the_topics_size_limit_is_used_if_known() {
    let known = facts([Some(topic(&[("max.message.bytes", "1048588")])), Some(topic(&[]))], &settings()).unwrap();
    assert_eq!(known, Facts { partitions: 3, largest: Some(1_048_588) });
    assert_eq!(facts([Some(topic(&[])), Some(topic(&[]))], &settings()).unwrap().largest, None);
}
