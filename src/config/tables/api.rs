//! `[api]`: the service.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use url::Url;

use crate::config::reading::values::{http_url, positive_duration, text_if, whole_number};
use crate::config::reading::{KeyUse, Reading, Reported, Section, all};
use api::{self, MAX_KEYS};
use net::retry::RetryPolicy;
use net::secret::Secret;
use net::turns::Rate;

/// How many events the service can return on one page (spec/wire.md, "Requests").
const PAGE_LIMIT: std::ops::RangeInclusive<u16> = 1..=200;

/// How many requests per second an operator can allow. Zero is no limit.
const REQUESTS_PER_SECOND: std::ops::RangeInclusive<u32> = 0..=1000;

/// The key that names the files of several API keys.
const FILES: &str = "api_key_files";

/// `[api]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// The connection to the service. The address has no slash at its end, except for the bare root. The keys are visible
    /// ASCII. No timeout is zero.
    pub client: api::Settings,
    /// When the key in use expires, if the operator knows it.
    pub key_expires: Option<Timestamp>,
    /// How many events to request at once: 1 to 200.
    pub page_limit: u16,
    /// The waits while errors last. Never zero.
    pub retry: RetryPolicy,
    /// The wait for new events after all events were read. Never zero.
    pub idle_wait: Duration,
    /// The maximum rate of requests, for all channels and instances together. `None` is no limit.
    pub rate: Option<Rate>,
}

impl Api {
    pub(crate) fn read(api: &Section<'_>) -> Result<Self, Reported> {
        let note_plaintext = |url: &Url| api.note_plaintext("base_url", url, "the API key");
        all!(Self {
            client: all!(api::Settings {
                base_url: api.required("base_url", base_url).inspect(note_plaintext),
                api_keys: keys(api),
                connect_timeout: api.required("connect_timeout", positive_duration),
                request_timeout: api.required("request_timeout", positive_duration),
            }),
            key_expires: key_expires(api),
            page_limit: api.required("page_limit", whole_number(PAGE_LIMIT)),
            retry: api.retry_waits(["2s", "60s"]),
            idle_wait: api.required("idle_wait", positive_duration),
            rate: api.required("requests_per_second", whole_number(REQUESTS_PER_SECOND)).map(rate),
        })
    }
}

/// Reads the API keys, in the order of their use.
fn keys(api: &Section<'_>) -> Result<Vec<Secret>, Reported> {
    let key = |text: &str| check_key(text).map(Secret::new);
    let keys = match api.one_of(["api_key", "api_key_file", "api_key_command", FILES])? {
        Some(FILES) => api.secret_files(FILES, "is empty; name the file of a key", key)?,
        _ => api.secret("api_key", key)?.map(|key| vec![key]),
    };
    let keys = keys.ok_or_else(|| {
        let key = api.key.at("api_key");
        api.wrong("api_key", format!("is missing; set it, or {key}_file, or {}", key.variable()))
    })?;
    if keys.len() > MAX_KEYS {
        return Err(api.wrong(FILES, format!("names more than {MAX_KEYS} files; remove those of old keys")));
    }
    Ok(keys)
}

fn key_expires(api: &Section<'_>) -> Reading<Timestamp> {
    let expires = api.optional("api_key_expires", |text| {
        api.note_use("api_key_expires", KeyUse::ShownAs(text.to_owned()));
        day(text.trim()).ok_or_else(|| "must be the day on which the key expires, such as 2027-03-01".to_owned())
    })?;
    if let Some(warning) = expires.and_then(|expires| operator::expires_soon(expires, Timestamp::now())) {
        api.note("api_key_expires", warning);
    }
    Ok(expires)
}

/// Parses a time, or a day. A day begins at midnight in UTC.
fn day(text: &str) -> Option<Timestamp> {
    let day = || Some(text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    text.parse().ok().or_else(day)
}

fn rate(requests: u32) -> Option<Rate> {
    (requests > 0).then_some(Rate { requests, per: Duration::from_secs(1) })
}

fn base_url(text: &str) -> Result<Url, String> {
    let mut url = http_url(text)?;
    if url.query().is_some() {
        return Err("must not have a query; remove everything from the ? on".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

fn check_key(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("is empty; give the key that the service issued".to_owned());
    }
    let legal = text.bytes().all(|byte| byte.is_ascii_graphic());
    text_if(legal, text, "must be visible ASCII without spaces; give the key alone, without \"Apikey\"")
}
