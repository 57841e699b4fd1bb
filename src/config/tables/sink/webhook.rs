//! Reads and describes the settings of a webhook.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use reqwest::header::{AUTHORIZATION, HeaderName};
use serde_json::json;
use url::Url;

use super::file::{NOT_COMPRESSED, compression};
use crate::config::reading::values::{
    duration_in, http_url, positive_duration, size_in, text_if, unless_empty, whole_number, word,
};
use crate::config::reading::{KeyUse, Reading, Reported, Section, all};
use crate::config::settings_list::SettingsList;
use crate::config::tables::server::{read_authorities, read_identity};
use ::sink::{Credentials, Dispatch, OAuth2, Rate, SigningKeys, WebhookSettings, has_token};
use net::http::{ConnectionSettings, Proxy, check_public};
use net::secret::Secret;

mod headers;

/// How many events a batch can contain. One event means no batches.
const EVENTS: RangeInclusive<usize> = 1..=1_000;

/// The size limit of a batch's body.
const BYTES: RangeInclusive<ByteSize> = ByteSize::kib(1)..=ByteSize::mib(64);

/// How long a batch can wait for more events. This wait delays the events that are in the batch already.
const WAITS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(5 * 60);

/// How many requests per second, minute or hour can be configured.
const RATE: RangeInclusive<u32> = 1..=10_000;
const UNITS: [(&str, Duration); 3] =
    [("s", Duration::from_secs(1)), ("m", Duration::from_secs(60)), ("h", Duration::from_secs(60 * 60))];

/// How many concurrent requests can be configured.
const CONCURRENCY: RangeInclusive<usize> = 1..=64;

/// Many token endpoints refuse longer texts.
const OAUTH2_LIMIT: usize = 4 * 1024;

pub(super) fn read(sink: &Section<'_>) -> Result<WebhookSettings, Reported> {
    let url = read_url(sink);
    let settings = all!(WebhookSettings {
        url: url,
        secret_url: Ok(sink.is_set("url_file") || sink.is_set("url_command")),
        keys: sink.secret("secret", SigningKeys::parse).map(Option::unwrap_or_default),
        headers: headers::read(sink),
        connection: read_connection(sink, url.as_ref().ok()),
        dispatch: read_dispatch(sink),
        oauth2: read_oauth2(sink),
        compression: sink.or("compress", compression, NOT_COMPRESSED),
        rate: sink.optional("rate_limit", rate),
        timeout: sink.or("timeout", positive_duration, "30s"),
    })?;
    check_oauth2(sink, &settings);
    sink.note_use("url", KeyUse::ShownAs(settings.shown_url()));
    Ok(settings)
}

/// The keys of the address. Exactly one of them is set.
const URL_KEYS: [&str; 3] = ["url", "url_file", "url_command"];

/// Reads `url`, or the address of `url_file` or `url_command`.
fn read_url(sink: &Section<'_>) -> Result<Url, Reported> {
    let key = sink.one_of(URL_KEYS)?.ok_or_else(|| sink.missing("url"))?;
    let url = if key == "url" { sink.optional(key, http_url) } else { sink.stored_secret("url", http_url) };
    let url = url?.ok_or_else(|| sink.missing(key))?;
    sink.note_plaintext(key, &url, "every event");
    if key == "url" && has_token(&url) {
        sink.note_secret(key);
        sink.note(key, "it seems to contain a token, which is shown as …; to keep the URL in a file, set url_file");
    }
    Ok(url)
}

/// Reads the authorities that TLS trusts, the client's certificate, the proxy, and the allowed addresses. `url` is the
/// endpoint, if it is valid.
fn read_connection(sink: &Section<'_>, url: Option<&Url>) -> Result<ConnectionSettings, Reported> {
    let connection = all!(ConnectionSettings {
        authorities: read_authorities(sink, "ca_file"),
        identity: read_identity(sink),
        proxy: read_proxy(sink),
        public_only: sink.boolean("allow_private", true).map(|allow_private| !allow_private),
    })?;
    if connection.public_only && matches!(connection.proxy, Proxy::Named { .. }) {
        let message = "cannot be set if allow_private is false: the proxy chooses the address, so it cannot be checked here; let the proxy refuse private addresses";
        sink.wrong("proxy", message);
    }
    if let Some(Err(error)) = url.filter(|_| connection.public_only).map(check_public) {
        let key = URL_KEYS.into_iter().find(|key| sink.is_set(key)).unwrap_or("url");
        sink.wrong(key, format!("cannot be reached: {error}"));
    }
    Ok(connection)
}

fn read_proxy(sink: &Section<'_>) -> Result<Proxy, Reported> {
    let proxy = sink.optional("proxy", unless_empty(proxy_url));
    let authorization = headers::read_basic(sink, "proxy_username", "proxy_password");
    match (proxy?, authorization?) {
        (Some(Some(url)), authorization) => {
            if authorization.is_some() {
                sink.note_plaintext("proxy", &url, "the proxy's password");
            }
            Ok(Proxy::Named { url, authorization })
        }
        (_, Some(_)) => Err(sink.wrong("proxy_username", "is set without proxy; set both")),
        (Some(None), None) => Ok(Proxy::Direct),
        (None, None) => Ok(Proxy::Environment),
    }
}

fn proxy_url(text: &str) -> Result<Url, String> {
    let url = http_url(text)?;
    if url.path() != "/" || url.query().is_some() {
        return Err("must be the address of a proxy without a path, such as \"http://proxy.internal:3128\"".to_owned());
    }
    Ok(url)
}

/// Reads the source of access tokens. Returns `None` without an `oauth2` table.
fn read_oauth2(sink: &Section<'_>) -> Reading<OAuth2> {
    let table = sink.section("oauth2");
    // Read these keys without the table too, so that they are known and can be suggested instead of a misspelt key.
    let token_url = table.optional("token_url", http_url);
    let client_id = table.optional("client_id", short);
    let client_secret = table.secret("client_secret", |text| short(text).map(Secret::new));
    let (scope, audience) = (table.optional("scope", short), table.optional("audience", short));
    if !sink.is_table("oauth2") {
        return Ok(None);
    }
    all!(OAuth2 {
        token_url: token_url
            .and_then(|url| url.ok_or_else(|| table.missing("token_url")))
            .inspect(|url| table.note_plaintext("token_url", url, "the client's secret")),
        client_id: client_id.and_then(|id| id.ok_or_else(|| table.missing("client_id"))),
        client_secret: client_secret.and_then(|secret| secret.ok_or_else(|| table.missing("client_secret"))),
        credentials: table.or("credentials", word, Credentials::default().into()),
        scope: scope,
        audience: audience,
    })
    .map(Some)
}

/// Records problems with settings that cannot be combined with access tokens.
fn check_oauth2(sink: &Section<'_>, settings: &WebhookSettings) {
    let Some(oauth2) = &settings.oauth2 else { return };
    if settings.headers.contains_key(AUTHORIZATION) {
        sink.wrong("oauth2", "is set together with another authorization of requests; keep one of the two");
    }
    if let Some(Err(error)) = settings.connection.public_only.then(|| check_public(&oauth2.token_url)) {
        sink.section("oauth2").wrong("token_url", format!("cannot be reached: {error}"));
    }
}

/// A text that is sent to the token endpoint.
fn short(text: &str) -> Result<Box<str>, String> {
    let legal = !text.is_empty() && text.len() <= OAUTH2_LIMIT && !text.contains(char::is_control);
    text_if(legal, text, "must be a string without control characters, 4 KiB at most").map(Into::into)
}

/// How requests carry events: one event each, several requests at a time, or batches.
fn read_dispatch(sink: &Section<'_>) -> Result<Dispatch, Reported> {
    let events = sink.or("batch_events", whole_number(EVENTS), "1");
    let bytes = sink.or("batch_bytes", size_in(BYTES), "1MiB");
    let wait = sink.or("batch_wait", duration_in(WAITS), "0s");
    let concurrency = sink.or("concurrency", whole_number(CONCURRENCY), "1");
    let (events, bytes, wait, concurrency) = (events?, bytes?, wait?, concurrency?);
    if events == 1 {
        if wait > Duration::ZERO {
            sink.wrong("batch_wait", "has an effect only for batches; set batch_events to more than 1, or remove it");
        }
        return Ok(Dispatch::Single { concurrency });
    }
    if concurrency > 1 {
        let message = "cannot be more than 1 together with batch_events: a batch contains events of several subjects, whose order concurrent requests would not preserve";
        sink.wrong("concurrency", message);
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Ok(Dispatch::Batches { events, bytes, wait })
}

/// Parses a number of requests per second, minute or hour.
fn rate(text: &str) -> Result<Rate, String> {
    let (requests, unit) = text.trim().split_once('/').unwrap_or_default();
    let requests = requests.trim().parse().ok().filter(|requests| RATE.contains(requests));
    let unit = UNITS.into_iter().find(|(name, _)| *name == unit.trim());
    let rate = requests.zip(unit).map(|(requests, (_, per))| Rate { requests, per });
    rate.ok_or_else(|| {
        let (least, most) = (RATE.start(), RATE.end());
        format!("must be a number of requests, {least} to {most}, a second, minute or hour, such as \"10/s\", \"100/m\" or \"500/h\"")
    })
}

pub(super) fn shown(settings: &WebhookSettings) -> SettingsList {
    let (symmetric, asymmetric) = settings.keys.counts();
    let mut headers: Vec<_> = settings.headers.keys().map(HeaderName::as_str).collect();
    headers.sort_unstable();
    let connection = &settings.connection;
    // The configured address: `None` if the environment decides, empty if no proxy is to be used.
    let proxy = match &connection.proxy {
        Proxy::Environment => None,
        Proxy::Direct => Some(""),
        Proxy::Named { url, .. } => Some(url.as_str()),
    };
    let mut shown = vec![
        ("url", json!(settings.shown_url())),
        ("signed", json!(symmetric + asymmetric > 0)),
        ("secrets", json!({"v1": symmetric, "v1a": asymmetric})),
        ("headers", json!(headers)),
        ("oauth2", json!(settings.oauth2.as_ref().map(|oauth2| oauth2.token_url.origin().ascii_serialization()))),
        ("compress", json!(settings.compression.map_or(NOT_COMPRESSED, <&str>::from))),
        ("rate_limit", json!(settings.rate.map(shown_rate))),
        ("client_certificate", json!(connection.identity.is_some())),
        ("ca_file", json!(connection.authorities.is_some())),
        ("proxy", json!(proxy)),
        ("allow_private", json!(!connection.public_only)),
    ];
    match settings.dispatch {
        Dispatch::Single { concurrency } => shown.push(("concurrency", json!(concurrency))),
        Dispatch::Batches { events, bytes, .. } => {
            shown.extend([("batch_events", json!(events)), ("batch_bytes", json!(bytes))]);
        }
    }
    shown
}

/// The rate as it is configured.
fn shown_rate(Rate { requests, per }: Rate) -> String {
    let unit = UNITS.into_iter().find(|(_, length)| *length == per);
    format!("{requests}/{}", unit.map_or("h", |(name, _)| name))
}
