//! Reads and describes the settings of a Kafka sink.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::json;
use url::Url;

use crate::config::reading::values::{duration_in, is_loopback, text_if, visible, whole_number, word};
use crate::config::reading::{Reported, Section, all};
use crate::config::settings_list::SettingsList;
use crate::config::tables::server::{read_authorities, read_identity};
use ::sink::{KafkaSettings, Mechanism, SaslLogin, Security};
use net::secret::Secret;

/// A transaction of a lane can wait for three answers, and by default brokers refuse transactions that may be open for
/// longer than 15 minutes.
const TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(5 * 60);

const PARTITIONS: RangeInclusive<u16> = 1..=10_000;
const REPLICAS: RangeInclusive<u8> = 0..=10;

/// The longest topic name.
const NAME_LIMIT: usize = 249;

/// The port of a broker whose address has no port.
const PORT: u16 = 9092;

pub(super) fn read(sink: &Section<'_>) -> Result<KafkaSettings, Reported> {
    let settings = all!(KafkaSettings {
        brokers: read_brokers(sink),
        security: read_security(&sink.section("security")),
        topic: sink.or("topic", name_of_topic, "channeld"),
        positions_topic: sink.or("positions_topic", name_of_topic, "channeld-positions"),
        transactional_id: sink.or("transactional_id", prefix, "channeld"),
        create: sink.boolean("create", true),
        partitions: sink.or("partitions", whole_number(PARTITIONS), "6"),
        replicas: sink.or("replicas", whole_number(REPLICAS), "0"),
        timeout: sink.or("timeout", duration_in(TIMEOUTS), "10s"),
    })?;
    if settings.positions_topic == settings.topic {
        sink.wrong("positions_topic", "must differ from the topic of events, which is not compacted");
    }
    let is_beyond = settings.brokers.iter().filter_map(|broker| address(broker)).any(|url| !is_loopback(&url));
    if settings.security.login.is_some() && !settings.security.tls && is_beyond {
        let message = "false: the login and the events can be read and changed in transit; let the brokers use TLS, and set it to true";
        sink.section("security").note("tls", message);
    }
    Ok(settings)
}

fn read_brokers(sink: &Section<'_>) -> Result<Vec<String>, Reported> {
    let brokers = sink.list("brokers")?.ok_or_else(|| sink.missing("brokers"))?;
    let brokers: Option<Vec<_>> = brokers.iter().map(|text| broker(text.trim())).collect();
    let message = "must be hosts with their ports, such as [\"kafka-1.internal:9092\", \"kafka-2.internal:9092\"]";
    brokers.filter(|brokers| !brokers.is_empty()).ok_or_else(|| sink.wrong("brokers", message))
}

/// Parses a host and its port.
fn broker(text: &str) -> Option<String> {
    let url = address(text).filter(|_| !text.contains(['/', '@', '?', '#', ',', ' ']))?;
    Some(format!("{}:{}", url.host_str()?, url.port().unwrap_or(PORT)))
}

fn address(text: &str) -> Option<Url> {
    Url::parse(&format!("kafka://{text}")).ok().filter(|url| url.host_str().is_some_and(|host| !host.is_empty()))
}

fn read_security(security: &Section<'_>) -> Result<Security, Reported> {
    let with_tls = ["ca_file", "client_certificate_file"].into_iter().filter(|key| security.is_set(key));
    let read = all!(Security {
        authorities: read_authorities(security, "ca_file"),
        identity: read_identity(security),
        login: read_login(security),
        tls: security.boolean("tls", with_tls.clone().next().is_some()),
    })?;
    if !read.tls {
        for key in with_tls {
            security.wrong(key, "has an effect only with TLS; remove it, or tls = false");
        }
    }
    Ok(read)
}

fn read_login(security: &Section<'_>) -> Result<Option<SaslLogin>, Reported> {
    let mechanism = security.optional("mechanism", word::<Mechanism>);
    let Some((user, password)) = security.login(["user", "password"], visible, visible)? else {
        return mechanism.map(|_| None);
    };
    let mechanism = security.or("mechanism", word, Mechanism::default().into())?;
    Ok(Some(SaslLogin { mechanism, user, password: Secret::new(password) }))
}

fn is_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text.len() <= NAME_LIMIT && text.chars().all(legal)
}

fn name_of_topic(text: &str) -> Result<String, String> {
    let legal = is_name(text) && !matches!(text, "." | "..");
    text_if(
        legal,
        text,
        &format!("must be a topic's name: letters, digits, ., _ and -, {NAME_LIMIT} characters at most"),
    )
}

fn prefix(text: &str) -> Result<String, String> {
    text_if(
        is_name(text),
        text,
        &format!("must consist of letters, digits, ., _ and -, {NAME_LIMIT} characters at most"),
    )
}

pub(super) fn shown(settings: &KafkaSettings) -> SettingsList {
    let Security { tls, authorities, identity, login } = &settings.security;
    vec![
        ("brokers", json!(settings.brokers)),
        ("topic", json!(settings.topic)),
        ("positions_topic", json!(settings.positions_topic)),
        ("transactional_id", json!(settings.transactional_id)),
        ("create", json!(settings.create)),
        ("partitions", json!(settings.partitions)),
        ("replicas", json!(settings.replicas)),
        ("tls", json!(tls)),
        ("ca_file", json!(authorities.is_some())),
        ("client_certificate", json!(identity.is_some())),
        ("user", json!(login.as_ref().map(|login| &login.user))),
        ("mechanism", json!(login.as_ref().map(|login| <&str>::from(login.mechanism)))),
    ]
}
