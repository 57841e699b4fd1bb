//! Reads and describes the settings of a webhook.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use reqwest::header::HeaderName;
use serde_json::json;
use url::Url;

use super::file::{NOT_COMPRESSED, compression};
use crate::config::reading::values::{duration, http_url, positive_duration, size_in, whole_number};
use crate::config::reading::{Reported, Section, all};
use crate::config::shown::Shown;
use ::sink::{Dispatch, Rate, SigningKeys, WebhookSettings, has_token};
use net::http::Proxy;

mod connection;
mod headers;
mod oauth2;

/// The default of `timeout`.
const TIMEOUT: &str = "30s";

/// How many events a batch can contain. One event means no batches.
const EVENTS: RangeInclusive<usize> = 1..=1_000;

/// The size limit of a batch's body.
const BYTES: RangeInclusive<ByteSize> = ByteSize::kib(1)..=ByteSize::mib(64);

/// The default size limit of a batch's body.
const DEFAULT_BYTES: &str = "1MiB";

/// The longest wait for more events. Events are delayed by this wait.
const WAIT_LIMIT: Duration = Duration::from_secs(5 * 60);

/// How many requests per second, minute or hour can be configured.
const RATE: RangeInclusive<u32> = 1..=10_000;

/// How many concurrent requests can be configured.
const CONCURRENCY: RangeInclusive<usize> = 1..=64;

pub(super) fn read(sink: &Section<'_>) -> Result<WebhookSettings, Reported> {
    let url = read_url(sink);
    let settings = all!(WebhookSettings {
        url: url,
        secret_url: Ok(sink.is_set("url_file")),
        keys: sink.secret("secret", SigningKeys::parse).map(Option::unwrap_or_default),
        headers: headers::read(sink),
        connection: connection::read(sink, url.as_ref().ok()),
        dispatch: read_dispatch(sink),
        oauth2: oauth2::read(sink),
        compression: sink.or("compress", compression, NOT_COMPRESSED),
        rate: sink.optional("rate_limit", rate),
        timeout: sink.or("timeout", positive_duration, TIMEOUT),
    })?;
    oauth2::check(sink, &settings);
    sink.show_as("url", settings.shown_url());
    Ok(settings)
}

/// Reads `url`, or the address in `url_file`.
fn read_url(sink: &Section<'_>) -> Result<Url, Reported> {
    const KEYS: [&str; 2] = ["url", "url_file"];
    let key = sink.either(KEYS[0], KEYS[1])?.ok_or_else(|| sink.missing(KEYS[0]))?;
    let url = if key == KEYS[0] { sink.optional(key, http_url) } else { sink.secret_file(key, http_url) };
    let url = url?.ok_or_else(|| sink.missing(key))?;
    sink.note_plaintext(key, &url, "every event");
    if key == KEYS[0] && has_token(&url) {
        sink.note_secret(key);
        sink.note(key, "it seems to contain a token, which is shown as …; keep the URL in a file, with url_file");
    }
    Ok(url)
}

/// How requests carry events: one event each, several requests at a time, or batches.
fn read_dispatch(sink: &Section<'_>) -> Result<Dispatch, Reported> {
    let events = sink.or("batch_events", whole_number(EVENTS), "1");
    let bytes = sink.or("batch_bytes", size_in(BYTES), DEFAULT_BYTES);
    let wait = sink.or("batch_wait", wait, "0s");
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
    let bytes = usize::try_from(bytes.as_u64()).unwrap_or(usize::MAX);
    Ok(Dispatch::Batches { events, bytes, wait })
}

fn wait(text: &str) -> Result<Duration, String> {
    let wait = Some(duration(text)?).filter(|wait| *wait <= WAIT_LIMIT);
    wait.ok_or_else(|| "must not be longer than \"5m\"".to_owned())
}

/// Parses a number of requests per second, minute or hour.
fn rate(text: &str) -> Result<Rate, String> {
    let (requests, unit) = text.trim().split_once('/').unwrap_or_default();
    let requests = requests.trim().parse().ok().filter(|requests| RATE.contains(requests));
    let per = match unit.trim() {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        _ => None,
    };
    let rate = requests.zip(per).map(|(requests, per)| Rate { requests, per: Duration::from_secs(per) });
    rate.ok_or_else(|| {
        let (least, most) = (RATE.start(), RATE.end());
        format!("must be a number of requests, {least} to {most}, a second, minute or hour, such as \"10/s\", \"100/m\" or \"500/h\"")
    })
}

pub(super) fn shown(settings: &WebhookSettings) -> Shown {
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
    let unit = match per.as_secs() {
        1 => "s",
        60 => "m",
        _ => "h",
    };
    format!("{requests}/{unit}")
}
