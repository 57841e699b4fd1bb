//! Promises about the keys of a Kafka sink. Every build reads them, but only a build with the feature makes the sink.

use super::*;
use ::sink::{KafkaSettings, Mechanism};

/// `GOOD` with a sink that has these lines.
fn log(lines: &str) -> String {
    format!("{GOOD}\n[sinks.log]\ntype = 'kafka'\n{lines}\n")
}

/// The keys with mistakes, except `type`, which is always reported by a build without Kafka.
fn wrong(text: &str) -> Vec<String> {
    let error = match load(text, &[]) {
        Ok(_) if HAS_KAFKA => return Vec::new(),
        Ok(_) => panic!("a sink of type kafka is taken without Kafka"),
        Err(error) => error,
    };
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let (types, others): (Vec<_>, Vec<_>) = keys_of(&error).into_iter().partition(|key| *key == "sinks.log.type");
    assert_eq!(types.is_empty(), HAS_KAFKA, "{error}");
    others.into_iter().map(str::to_owned).collect()
}

fn loaded(lines: &str) -> KafkaSettings {
    let config = load(&log(lines), &[]).unwrap_or_else(|error| panic!("{lines}: {error}"));
    let shown = format!("{config:?}{:?}", config.sinks["log"].shown());
    assert!(!shown.contains("hunter2"), "{shown}");
    let SinkSettings::Kafka(settings) = config.sinks["log"].settings.clone() else { panic!("{config:?}") };
    *settings
}

#[test]
fn a_program_without_kafka_says_so_with_remedy() {
    let loaded = load(&log("brokers = ['host']"), &[]);
    if HAS_KAFKA {
        assert!(loaded.is_ok());
    } else {
        let error = loaded.expect_err("Kafka is not built in").to_string();
        assert!(
            error.contains("sinks.log.type") && error.contains("cargo build --release --features kafka"),
            "{error}"
        );
    }
}

#[test]
fn each_mistake_is_reported_under_its_key_and_shows_no_secret() {
    let brokers = "brokers = ['host:9092']";
    let cases = [
        ("", "brokers"),
        ("brokers = []", "brokers"),
        ("brokers = ['']", "brokers"),
        ("brokers = ['kafka://host']", "brokers"),
        ("brokers = ['me:hunter2@host']", "brokers"),
        ("brokers = ['host:nope']", "brokers"),
        ("brokers = 'host:1/topic'", "brokers"),
        (&format!("{brokers}\ntopic = 'a b'"), "topic"),
        (&format!("{brokers}\ntopic = '..'"), "topic"),
        (&format!("{brokers}\npositions_topic = 'channeld'"), "positions_topic"),
        (&format!("{brokers}\ntransactional_id = 'a/b'"), "transactional_id"),
        (&format!("{brokers}\npartitions = 0"), "partitions"),
        (&format!("{brokers}\nreplicas = 11"), "replicas"),
        (&format!("{brokers}\ncreate = 'perhaps'"), "create"),
        (&format!("{brokers}\ntimeout = '1h'"), "timeout"),
        (&format!("{brokers}\nsecurity.user = 'me'"), "security.user"),
        (&format!("{brokers}\nsecurity.password = 'hunter2'"), "security.user"),
        (&format!("{brokers}\nsecurity.mechanism = 'gssapi'"), "security.mechanism"),
        (&format!("{brokers}\nsecurity.ca_file = '/nowhere'"), "security.ca_file"),
        (&format!("{brokers}\nsecurity.client_certificate_file = '/nowhere'"), "security.client_certificate_file"),
        (&format!("{brokers}\nsecurity.protocol = 'SASL_SSL'"), "security.protocol"),
    ];
    for (lines, key) in cases {
        assert_eq!(wrong(&log(lines)), [format!("sinks.log.{key}")], "{lines}");
    }
}

#[test]
fn unset_keys_have_the_documented_defaults() {
    if !HAS_KAFKA {
        return;
    }
    let settings = loaded("brokers = ['one', 'two:9093', '[::1]:9094']");
    assert_eq!(settings.shown_brokers(), "one:9092,two:9093,[::1]:9094");
    assert_eq!((&*settings.topic, &*settings.positions_topic), ("channeld", "channeld-positions"));
    assert_eq!((&*settings.transactional_id, settings.partitions, settings.replicas), ("channeld", 6, 0));
    assert!(settings.create && !settings.security.tls && settings.security.login.is_none());
}

#[test]
fn credentials_come_from_a_value_or_file_and_are_not_shown() {
    if !HAS_KAFKA {
        return;
    }
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("password");
    fs::write(&path, "hunter2\n").expect("a file");
    for (lines, mechanism) in [
        ("security.password = 'hunter2'", Mechanism::ScramSha512),
        (&format!("security.password_file = {path:?}\nsecurity.mechanism = 'plain'"), Mechanism::Plain),
    ] {
        let settings = loaded(&format!("brokers = ['host']\nsecurity.user = 'me'\n{lines}"));
        let login = settings.security.login.expect(lines);
        assert_eq!((&*login.user, login.password.expose(), login.mechanism), ("me", "hunter2", mechanism));
    }
}

#[test]
fn an_unencrypted_login_is_noted() {
    if !HAS_KAFKA {
        return;
    }
    let notes = |broker: &str, more: &str| {
        let login = "security.user = 'me'\nsecurity.password = 'hunter2'";
        let config = load(&log(&format!("brokers = ['{broker}']\n{login}\n{more}")), &[]).expect(broker);
        config.notes.into_iter().filter(|note| note.contains("security")).collect::<Vec<_>>()
    };
    assert_eq!(notes("127.0.0.1:9092", ""), Vec::<String>::new());
    assert_eq!(notes("host:9092", "security.tls = true"), Vec::<String>::new());
    assert!(notes("host:9092", "")[0].starts_with("sinks.log.security.tls: false"));
}
