//! `[api]`: how the channels of all accounts are read. The other keys of this table belong to the default account: see `account.rs`.

use std::time::Duration;

use crate::config::reading::values::{positive_duration, whole_number};
use crate::config::reading::{Reported, Section, all};
use net::retry::RetryPolicy;

/// How many events the service can return on one page (spec/wire.md, "Requests").
const PAGE_LIMIT: std::ops::RangeInclusive<u16> = 1..=200;

/// `[api]`, except for the default account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// How many events to request at once: 1 to 200.
    pub page_limit: u16,
    /// The waits while errors last. Never zero.
    pub retry: RetryPolicy,
    /// The wait for new events after all events were read. Never zero.
    pub idle_wait: Duration,
}

impl Api {
    pub(crate) fn read(api: &Section<'_>) -> Result<Self, Reported> {
        all!(Self {
            page_limit: api.required("page_limit", whole_number(PAGE_LIMIT)),
            retry: api.retry_waits(["2s", "60s"]),
            idle_wait: api.required("idle_wait", positive_duration),
        })
    }
}
