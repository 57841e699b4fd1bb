//! The service: its address, our key to it, and how patient we are.

use std::time::Duration;

use url::Url;

use super::keys::{Key, Keys, Reported};
use super::secret::{self, Secret};
use super::values::{http_url, positive_duration, retry_waits};

/// The most events that the service puts on a page (spec/wire.md, "Requests").
const PAGE_LIMIT: std::ops::RangeInclusive<u16> = 1..=200;

/// `[api]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// The service's address up to and with its version, no slash at its end (but for the bare root), no credentials,
    /// query or fragment.
    pub base_url: Url,
    /// The key of every request: visible ASCII, a legal header value.
    pub api_key: Secret,
    /// How many events to ask for at once: 1 to 200.
    pub page_limit: u16,
    /// The longest wait for a connection. Never zero.
    pub connect_timeout: Duration,
    /// The longest wait for a complete answer. Never zero.
    pub request_timeout: Duration,
    /// The wait after a first error. Never zero.
    pub retry_wait: Duration,
    /// What that wait grows to while errors last. Not shorter than `retry_wait`.
    pub retry_wait_max: Duration,
    /// The wait for new events when there are no more. Never zero.
    pub idle_wait: Duration,
}

impl Api {
    pub(super) fn read(keys: &mut Keys) -> Result<Self, Reported> {
        let api = Key::new("api");
        let base_url = keys.required(&api.at("base_url"), base_url);
        let api_key = secret::read(keys, &api, "api_key", check_api_key);
        let page_limit = keys.required(&api.at("page_limit"), page_limit);
        let connect_timeout = keys.required(&api.at("connect_timeout"), positive_duration);
        let request_timeout = keys.required(&api.at("request_timeout"), positive_duration);
        let retry_waits = retry_waits(keys, &api, None);
        let idle_wait = keys.required(&api.at("idle_wait"), positive_duration);
        let api_key = api_key?.ok_or_else(|| {
            let key = api.at("api_key");
            keys.wrong(&key, format!("is missing; set it, or {key}_file, or {}", key.variable()))
        });
        let (retry_wait, retry_wait_max) = retry_waits?;
        Ok(Self {
            base_url: base_url?,
            api_key: api_key?,
            page_limit: page_limit?,
            connect_timeout: connect_timeout?,
            request_timeout: request_timeout?,
            retry_wait,
            retry_wait_max,
            idle_wait: idle_wait?,
        })
    }
}

fn base_url(text: &str) -> Result<Url, String> {
    let mut url = http_url(text)?;
    if url.query().is_some() {
        return Err("must not have a query; remove the ? and what follows".to_owned());
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

fn check_api_key(text: &str) -> Result<(), &'static str> {
    match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        _ if text.is_empty() => Err("is empty; give the key that the service issued"),
        true => Ok(()),
        false => Err("must be visible ASCII without spaces; give the key alone, without \"Apikey\""),
    }
}

fn page_limit(text: &str) -> Result<u16, String> {
    let limit = text.trim().parse().ok().filter(|limit| PAGE_LIMIT.contains(limit));
    limit.ok_or_else(|| format!("must be a whole number from {} to {}", PAGE_LIMIT.start(), PAGE_LIMIT.end()))
}
