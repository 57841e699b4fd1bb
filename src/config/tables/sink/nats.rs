//! Reads and describes the settings of a JetStream sink.

use std::ops::RangeInclusive;

use serde_json::json;
use url::Url;

use crate::config::reading::values::{is_loopback, positive_duration, visible, whole_number};
use crate::config::reading::{Reported, Section, all};
use crate::config::shown::Shown;
use crate::config::tables::tls::{read_authorities, read_identity};
use ::sink::{Login, NatsSettings, Pattern};
use net::secret::Secret;

/// The waits while a server is unavailable. They are short, because a retry is cheap and the events wait.
pub(super) const RETRY: [&str; 2] = ["1s", "10s"];

const TIMEOUT: &str = "10s";

/// How many servers can store a stream.
const REPLICAS: RangeInclusive<u8> = 1..=5;

const SUBJECT: &str = "channeld.{channel}.{type}";
const POSITIONS: &str = "channeld-positions";

/// The longest stream name.
const NAME_LIMIT: usize = 255;

pub(super) fn read(sink: &Section<'_>) -> Result<NatsSettings, Reported> {
    let settings = all!(NatsSettings {
        servers: read_servers(sink),
        login: read_login(sink),
        authorities: read_authorities(sink, "ca_file"),
        identity: read_identity(sink),
        stream: sink.or("stream", stream, "channeld"),
        subject: sink.or("subject", pattern, SUBJECT),
        positions: sink.or("positions", positions, POSITIONS),
        create: sink.boolean("create", true),
        replicas: sink.or("replicas", whole_number(REPLICAS), "1"),
        timeout: sink.or("timeout", positive_duration, TIMEOUT),
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
        return Err(
            "must be addresses such as \"nats://bus.internal:4222\" or \"tls://…\", with commas between".to_owned()
        );
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
    let credentials = sink.secret_file("credentials_file", credentials);
    let password = sink.login(["user", "password"], visible, visible);
    let token = sink.secret("token", visible);
    let password = password?.map(|(user, password)| ("user", Login::Password(user, Secret::new(password))));
    let credentials = credentials?.map(|text| ("credentials_file", Login::Credentials(Secret::new(text))));
    let token = token?.map(|text| ("token", Login::Token(Secret::new(text))));
    let mut logins = credentials.into_iter().chain(password).chain(token);
    match (logins.next(), logins.next()) {
        (login, None) => Ok(login.map_or(Login::None, |(_, login)| login)),
        (_, Some((key, _))) => {
            Err(sink.wrong(key, "is set together with another login; keep one of credentials_file, user and token"))
        }
    }
}

fn credentials(text: &str) -> Result<String, String> {
    if text.contains("BEGIN NATS USER JWT") && text.contains("BEGIN USER NKEY SEED") {
        // The client needs a line end after each line, and `read_secret` has removed the last one.
        return Ok(format!("{text}\n"));
    }
    Err("must contain a user's JWT and its NKEY seed, as `nsc generate creds` writes them".to_owned())
}

fn pattern(text: &str) -> Result<Pattern, String> {
    text.parse().map_err(str::to_owned)
}

fn stream(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '.' | '*' | '>' | '/' | '\\');
    let is_name = !text.is_empty() && text.len() <= NAME_LIMIT && text.chars().all(legal);
    Some(text.to_owned())
        .filter(|_| is_name)
        .ok_or_else(|| "must be a stream's name: visible ASCII characters without . * > / and \\".to_owned())
}

fn positions(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_prefix =
        text.len() <= NAME_LIMIT && text.split('.').all(|token| !token.is_empty() && token.chars().all(legal));
    Some(text.to_owned())
        .filter(|_| is_prefix)
        .ok_or_else(|| "must be words of letters, digits, - and _ with dots between them".to_owned())
}

pub(super) fn shown(settings: &NatsSettings) -> Shown {
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

/// The kind of login: the key that sets it, or the name of the user.
fn login(settings: &NatsSettings) -> Option<&str> {
    match &settings.login {
        Login::None => None,
        Login::Credentials(_) => Some("credentials_file"),
        Login::Password(user, _) => Some(user),
        Login::Token(_) => Some("token"),
    }
}
