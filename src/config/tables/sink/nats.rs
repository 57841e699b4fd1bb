//! Reads and describes the settings of a JetStream sink.

use std::ops::RangeInclusive;

use serde_json::json;
use url::Url;

use crate::config::reading::values::{is_loopback, positive_duration, text_if, visible, whole_number};
use crate::config::reading::{Reported, Section, all};
use crate::config::settings_list::SettingsList;
use crate::config::tables::server::{read_authorities, read_identity};
use ::sink::{Login, NatsSettings};
use net::secret::Secret;

/// How many servers can store a stream.
const REPLICAS: RangeInclusive<u8> = 1..=5;

/// The longest stream name.
const NAME_LIMIT: usize = 255;

pub(super) fn read(sink: &Section<'_>) -> Result<NatsSettings, Reported> {
    let settings = all!(NatsSettings {
        servers: read_servers(sink),
        login: read_login(sink),
        authorities: read_authorities(sink, "ca_file"),
        identity: read_identity(sink),
        stream: sink.or("stream", stream, "channeld"),
        subject: sink.or("subject", |text| text.parse().map_err(str::to_owned), "channeld.{channel}.{type}"),
        positions: sink.or("positions", positions, "channeld-positions"),
        create: sink.boolean("create", true),
        replicas: sink.or("replicas", whole_number(REPLICAS), "1"),
        timeout: sink.or("timeout", positive_duration, "10s"),
    })?;
    if settings.positions.split('.').next() == Some(settings.subject.first()) {
        let message =
            "must begin with a different word than subject: otherwise readers of the events receive positions too";
        sink.wrong("positions", message);
    }
    Ok(settings)
}

fn read_servers(sink: &Section<'_>) -> Result<Vec<Url>, Reported> {
    let servers: Vec<Url> =
        sink.required("url", |text| text.split(',').map(|server| server_url(server.trim())).collect())?;
    let is_plain = |url: &Url| url.scheme() == "nats" && !is_loopback(url);
    if servers.iter().any(is_plain) && !["ca_file", "client_certificate_file"].iter().any(|key| sink.is_set(key)) {
        sink.note("url", "with nats:// the server decides whether TLS is used; with tls:// it is required");
    }
    Ok(servers)
}

fn server_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .map_err(|error| format!("is not a URL ({error}); give addresses such as \"nats://bus.internal:4222\""))?;
    if !matches!(url.scheme(), "nats" | "tls") || url.host_str().is_none_or(str::is_empty) {
        return Err("must be nats:// or tls:// and a host, such as \"nats://bus.internal:4222\"".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not carry a user, password or token; set user and password, or token".to_owned());
    }
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err("must end after the host and the port".to_owned());
    }
    Ok(url)
}

fn read_login(sink: &Section<'_>) -> Result<Login, Reported> {
    let credentials = sink.stored_secret("credentials", credentials);
    let password = sink.login(["user", "password"], visible, visible);
    let token = sink.secret("token", visible);
    let another =
        |key| Err(sink.wrong(key, "is set together with another login; keep one of credentials_file, user and token"));
    match (credentials?, password?, token?) {
        (None, None, None) => Ok(Login::None),
        (Some(text), None, None) => Ok(Login::Credentials(Secret::new(text))),
        (None, Some((user, password)), None) => Ok(Login::Password(user, Secret::new(password))),
        (None, None, Some(token)) => Ok(Login::Token(Secret::new(token))),
        (Some(_), Some(_), _) => another("user"),
        (_, _, Some(_)) => another("token"),
    }
}

fn credentials(text: &str) -> Result<String, String> {
    let legal = text.contains("BEGIN NATS USER JWT") && text.contains("BEGIN USER NKEY SEED");
    // The client needs a line end after each line, and `read_secret` has removed the last one.
    let text = format!("{text}\n");
    text_if(legal, &text, "must contain a user's JWT and its NKEY seed, as `nsc generate creds` writes them")
}

fn stream(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '.' | '*' | '>' | '/' | '\\');
    let is_name = !text.is_empty() && text.len() <= NAME_LIMIT && text.chars().all(legal);
    text_if(is_name, text, "must be a stream's name: visible ASCII characters without . * > / and \\")
}

fn positions(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let are_words = text.split('.').all(|token| !token.is_empty() && token.chars().all(legal));
    let is_prefix = text.len() <= NAME_LIMIT && are_words;
    text_if(is_prefix, text, "must be words of letters, digits, - and _ with dots between them")
}

pub(super) fn shown(settings: &NatsSettings) -> SettingsList {
    vec![
        ("url", json!(settings.shown_servers())),
        ("stream", json!(settings.stream)),
        ("subject", json!(settings.subject.to_string())),
        ("positions", json!(settings.positions)),
        ("create", json!(settings.create)),
        ("replicas", json!(settings.replicas)),
        ("login", json!(login(settings))),
        ("client_certificate", json!(settings.identity.is_some())),
        ("ca_file", json!(settings.authorities.is_some())),
    ]
}

/// Describes the login: the key that sets it or, with a password, the name of the user.
fn login(settings: &NatsSettings) -> Option<&str> {
    match &settings.login {
        Login::None => None,
        Login::Credentials(_) => Some("credentials_file"),
        Login::Password(user, _) => Some(user),
        Login::Token(_) => Some("token"),
    }
}
