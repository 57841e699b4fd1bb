//! `[api]`: the service.

use std::time::Duration;

use url::Url;

use crate::config::reading::values::{http_url, positive_duration, text_if, whole_number};
use crate::config::reading::{Reported, Section, all};
use api;
use net::retry::RetryPolicy;
use net::secret::Secret;
use net::turns::Rate;

/// How many events the service can return on one page (spec/wire.md, "Requests").
const PAGE_LIMIT: std::ops::RangeInclusive<u16> = 1..=200;

/// How many requests per second an operator can allow. Zero is no limit.
const REQUESTS_PER_SECOND: std::ops::RangeInclusive<u32> = 0..=1000;

/// `[api]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// The connection to the service. The address has no slash at its end, except for the bare root. The key is visible
    /// ASCII. No timeout is zero.
    pub client: api::Settings,
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
        let no_key = || {
            let key = api.key.at("api_key");
            api.wrong("api_key", format!("is missing; set it, or {key}_file, or {}", key.variable()))
        };
        let note_plaintext = |url: &Url| api.note_plaintext("base_url", url, "the API key");
        all!(Self {
            client: all!(api::Settings {
                base_url: api.required("base_url", base_url).inspect(note_plaintext),
                api_key: api
                    .secret("api_key", |text| check_key(text).map(Secret::new))
                    .and_then(|key| key.ok_or_else(no_key)),
                connect_timeout: api.required("connect_timeout", positive_duration),
                request_timeout: api.required("request_timeout", positive_duration),
            }),
            page_limit: api.required("page_limit", whole_number(PAGE_LIMIT)),
            retry: api.retry_waits(["2s", "60s"]),
            idle_wait: api.required("idle_wait", positive_duration),
            rate: api.required("requests_per_second", whole_number(REQUESTS_PER_SECOND)).map(rate),
        })
    }
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
