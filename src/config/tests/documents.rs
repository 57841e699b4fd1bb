//! The shipped files agree with the code.

use figment::providers::{Format, Toml};
use figment::value::Dict;
use strum::VariantNames;

use super::*;
use crate::config::key::Key;
use crate::config::tables::sink::SinkType;

const EXAMPLE: &str = include_str!("../../../config/channeld.example.toml");

const ACCOUNTS: &str = include_str!("../../../config/examples/accounts.toml");

const ALERTS: &str = include_str!("../../../config/examples/alerts.toml");

const AUDIT: &str = include_str!("../../../config/examples/audit.toml");

const BUS: &str = include_str!("../../../config/examples/bus.toml");

const FEED: &str = include_str!("../../../config/examples/feed.toml");

const LOG: &str = include_str!("../../../config/examples/log.toml");

const LEDGER: &str = include_str!("../../../config/examples/ledger.toml");

const WAREHOUSE: &str = include_str!("../../../config/examples/warehouse.toml");

/// Only the keys that `default.toml` documents without a default.
const WITHOUT_DEFAULTS: &str = r#"
api.api_key_file = "/run/credentials/channeld.service/api-key"
verification.org_id = "org_1"

[accounts.NAME]
api_key_file = "/run/credentials/channeld.service/fund-key"
org_id = "org_1"

[channels.NAME]
id = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
sinks = ["NAME-file", "NAME-webhook"]

[discover]
channels = "all"
sinks = ["NAME-file", "NAME-webhook"]

[sinks]
NAME-stdout.type = "stdout"
NAME-file = { type = "file", path = "/var/lib/channeld/events.jsonl" }
NAME-postgres = { type = "postgres", url = "postgresql://channeld@db.internal/warehouse" }
NAME-sqlite = { type = "sqlite", path = "/var/lib/channeld/events.db" }

[sinks.NAME-webhook]
type = "webhook"
url = "https://ledger.internal/hooks/events"
secret_file = "/run/credentials/channeld.service/ledger-secret"

[sinks.NAME-nats]
type = "nats"
url = "nats://127.0.0.1:4222"

[sinks.NAME-kafka]
type = "kafka"
brokers = ["127.0.0.1:9092"]
"#;

/// The directory in which the shipped files look for secrets.
const CREDENTIALS: &str = "/run/credentials/channeld.service";

/// `default.toml` with every commented key enabled, and with an organization.
fn documented() -> String {
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') && !key.is_empty() => key,
        _ => line,
    };
    DEFAULTS.lines().map(line).collect::<Vec<_>>().join("\n").replace("org_…", "org_1")
}

/// The text without the table of the Kafka sink, which is the last table, if this build has no Kafka sink.
fn buildable(text: &str) -> &str {
    if HAS_KAFKA { text } else { text.split_once("\n[sinks.NAME-kafka]").expect("it is documented").0 }
}

/// The text without the tables of the feed, which are optional. Their defaults have a test of their own.
fn without_feed(text: &str) -> String {
    let (before, rest) = text.split_once("\n[feed]\n").expect("the feed is documented");
    let (_, after) = rest.split_once("\n[accounts]\n").expect("the accounts follow");
    format!("{before}\n[accounts]\n{after}")
}

/// Loads the text with secrets in a temporary directory, and with an organization instead of the example's.
fn load_with_credentials(text: &str) -> Result<Config, ConfigError> {
    let text = text.replace("org_2abcDEFghiJKLmno", "org_1");
    let directory = TempDir::new().expect("a temporary directory");
    let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n";
    let hook = "https://hooks.slack.com/services/T0/B0/x\n";
    let all = [
        ("api-key", "k\n"),
        ("fund-key", "k\n"),
        ("treasury-key", "k\n"),
        ("next-treasury-key", "k\n"),
        ("ledger-secret", secret),
        ("slack-url", hook),
        ("routing-key", "k\n"),
        ("feed-token", "the-token-of-ledger\n"),
        ("nats-password", "k\n"),
        ("kafka-password", "k\n"),
        ("warehouse-url", "postgresql://channeld@db/warehouse\n"),
    ];
    for (name, text) in all {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own");
    }
    load(&text.replace(CREDENTIALS, &directory.path().display().to_string()), &[])
}

fn paths(table: &Dict, above: &Key, found: &mut BTreeSet<Key>) {
    for (name, value) in table {
        let key = above.at(name);
        match value.as_dict() {
            Some(inner) => paths(inner, &key, found),
            None => {
                found.insert(key);
            }
        }
    }
}

#[test]
fn every_key_is_documented_and_every_documented_key_is_read() {
    let table: Dict = Toml::from_str(&documented()).expect("default.toml is TOML with its comments opened");
    let mut expected = BTreeSet::new();
    paths(&table, &Key::default(), &mut expected);

    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("channeld.toml");
    fs::write(&file, documented()).expect("a file in it");
    let reader = Reader::open(&ConfigText::read(Some(&file)).expect("a text"), []).expect("TOML");
    let _ = Config::read(&Section::root(&reader));
    assert_eq!(reader.lookups.take().keys.into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn every_sink_type_is_documented_with_its_keys() {
    let documented = documented();
    for word in SinkType::VARIANTS {
        let table = format!("[sinks.NAME-{word}]\ntype = \"{word}\"\n");
        assert!(documented.contains(&table), "config/default.toml shows no sink of type {word}");
    }
}

#[test]
fn the_documented_defaults_match_the_code() {
    let placeholders = [
        "api_key = ",
        "api_key_files = ",
        "api_key_expires = ",
        "workflow_owner = ",
        "workflow_id = ",
        "chain_selector = ",
        "address = ",
        "service = ",
        "name = ",
        "secret = ",
        "url_file = ",
        "api_key_command = ",
        "secret_command = ",
        "url_command = ",
        "credentials_command = ",
        "valid_signers = [\"0x…",
        "don = ",
        "account = ",
        "filter",
        "template",
        "NAME-file = ",
        "give_up_after = ",
        "compare = ",
        "mode = ",
        "owner = ",
        "group = ",
        "rotate",
        "keep_",
        "latest_link = ",
        "header",
        "bearer_token",
        "username",
        "password",
        "ca_file",
        "client_",
        "otlp_headers",
        "otlp_ca_file",
        "\"16015286601757825753\" = ",
        "proxy",
        "credentials_file = ",
        "user = ",
        "token",
        "oauth2",
        "rate_limit",
        "security.user",
        "security.password",
        "security.ca_file",
        "security.client_",
    ];
    let stays = |line: &&str| !placeholders.iter().any(|placeholder| line.starts_with(placeholder));
    let documented = without_feed(&documented()).lines().filter(stays).collect::<Vec<_>>().join("\n");
    let load = |text: &str| load_with_credentials(buildable(text)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(load(&documented), load(WITHOUT_DEFAULTS));
}

#[test]
fn the_example_loads_once_its_secrets_exist() {
    let config = load_with_credentials(EXAMPLE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((config.channels.len(), config.sinks.len(), config.notes.len()), (2, 2, 0));

    let error = load(EXAMPLE, &[]).expect_err("no secrets");
    assert_eq!(keys_of(&error), ["api.api_key_file", "verification.org_id", "sinks.ledger.secret_file"]);
}

#[test]
fn the_examples_of_each_use_load_once_their_secrets_exist() {
    for (text, sinks) in [(ACCOUNTS, 1), (AUDIT, 1), (FEED, 1), (LEDGER, 1), (WAREHOUSE, 2), (ALERTS, 2), (BUS, 1)] {
        let config = load_with_credentials(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!((config.sinks.len(), config.notes), (sinks, Vec::<String>::new()));
    }
}

#[test]
fn the_example_with_kafka_loads_if_built_in() {
    match load_with_credentials(LOG) {
        Ok(config) => assert_eq!((config.sinks.len(), config.notes, HAS_KAFKA), (1, Vec::<String>::new(), true)),
        Err(error) => assert_eq!((keys_of(&error), HAS_KAFKA), (vec!["sinks.log.type"], false)),
    }
}

#[test]
fn the_alert_example_loads_with_each_chat_template() {
    for template in ["slack", "teams", "discord"] {
        let text = ALERTS.replace("template = \"slack\"", &format!("template = {template:?}"));
        let config = load_with_credentials(&text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.notes, Vec::<String>::new());
        let shipped = |sink: &str| config.sinks[sink].shape.template.as_ref().and_then(|template| template.shipped());
        assert_eq!(shipped("chat").map(<&str>::from), Some(template));
        assert_eq!(shipped("on-call").map(<&str>::from), Some("pagerduty"));
        assert_eq!(config.sinks["chat"].filter, Some(record::Filter::failures()));
    }
}
