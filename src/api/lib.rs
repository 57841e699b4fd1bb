//! The client of the service: poll, search, single events, a watcher's state, the list of channels, and the health check.
//!
//! # Invariants
//!
//! * **Classified by status.** The body of an error is shown to people and decides nothing, because a proxy can send
//!   any body. The exception is a 404: it counts as the service's answer only if its body is the service's error
//!   envelope.
//! * **The keys are sent only to the service.** Redirects are not followed. No `Debug` output, error or log contains a
//!   key, even if the service repeats it.
//! * **Bounded.** A body is read up to [`MAX_BODY`] bytes after decompression, and a page up to [`MAX_RECORDS`]
//!   records. A body is read only as far as memory is available.
//! * **No async thread is blocked.** A long page is parsed on another thread, and reading a long body yields to other
//!   tasks at intervals.
//! * **Bytes are preserved.** A [`RawEvent`] contains the service's original bytes, whether they are valid UTF-8 or
//!   not.
//! * **In turn.** Each request waits for its turn: see [`turns`](net::turns). A 429 makes the requests of all clients wait
//!   whose [`Caller`]s belong together: these are the clients of one account.
//! * **No retries.** The caller waits and retries. The variants of [`ApiError`] state the next step. The exception is a
//!   refused key: the request is repeated with the next of the [`Keys`] at once.
//!
//! # Cancellation
//!
//! Every call may be dropped at any point. The pool then closes or drains the connection that it used.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use url::Url;
use uuid::Uuid;

use net::http;
use net::memory::ChannelMemory;
use net::secret::Secret;
use net::turns::Caller;
use proof::event::{ChannelId, EventId, Offset, RawEvent};

mod account;
mod buffers;
mod channel_list;
mod error;
mod filter;
mod full_search;
mod keys;
mod network_list;
mod page;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transport;
pub mod windows;

pub use account::AccountName;
pub use channel_list::ListedChannel;
pub use error::{ApiError, ErrorResponse, InvalidResponse, MAX_BODY, Resource, SettingsError, TransientError};
pub use filter::{Created, Filter};
pub use full_search::{FullSearch, SearchError};
pub use keys::{KeyState, Keys, MAX_KEYS};
pub use page::{MAX_PAGE, MAX_RECORDS, Page, Watcher};
pub use transport::KEPT_CONNECTIONS;

use buffers::Buffers;

/// The smallest page that is requested if memory is short. One event is too few: it is unclear whether this event is
/// the whole range or only the newest event of a longer range. Two events are too few, because each request starts one
/// offset before the last known event. If the service treats the start as included, both events of such a page may
/// already be known.
pub const SMALLEST_PAGE: u16 = 3;

/// The connection settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The account. Errors name its table.
    pub account: AccountName,
    /// `http` or `https`, with the version segment at its end (`…/v1`). A trailing slash is ignored.
    pub base_url: Url,
    /// The API keys in the form that the service issued, in the order of their use. At least one, and at most
    /// [`MAX_KEYS`].
    pub api_keys: Vec<Secret>,
    /// The timeout for connecting, including TLS.
    pub connect_timeout: Duration,
    /// The timeout for a whole request, from connecting to the last byte of the body.
    pub request_timeout: Duration,
}

/// A client of the service. Cloning is cheap, and all clones share one connection pool.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// The base URL has no slash at its end.
    settings: Arc<Settings>,
    keys: Arc<Keys>,
    max_body: usize,
    buffers: Arc<Buffers>,
    memory: Arc<ChannelMemory>,
    turns: Arc<Caller>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.settings).finish()
    }
}

/// Two clients are equal if their settings are equal.
impl PartialEq for Client {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Client {
    /// Whether this client has these settings.
    pub fn has(&self, settings: &Settings) -> bool {
        *self.settings == *settings
    }

    /// The account of this client.
    pub fn account(&self) -> &AccountName {
        &self.settings.account
    }

    /// The keys of this client.
    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    /// Returns this client, but charges the memory of its response bodies to the given channel, and sends its requests in
    /// the turns of this caller.
    #[must_use]
    pub fn counted_by(self, memory: Arc<ChannelMemory>, turns: Arc<Caller>) -> Self {
        Self { memory, turns, ..self }
    }

    /// Reads a page of a channel's newest events, or of the events after `offset`. The section "`offset` on poll" of
    /// spec/wire.md lists the open questions about this parameter. `limit` is 1 to 200. With a `limit` above
    /// [`SMALLEST_PAGE`], the page is read only as far as memory is free. With a `limit` from 2 to [`SMALLEST_PAGE`],
    /// reading waits for memory. With a `limit` of 1, the page may exceed the memory limit.
    ///
    /// # Errors
    /// [`ApiError`]; a 404 is [`ApiError::ChannelGone`].
    pub async fn poll(&self, channel: ChannelId, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "events"]);
        let request = request.query(&(("limit", limit), ("offset", offset)));
        let body = match limit {
            // Reading the newest event must not wait until the pages in memory are processed.
            1 => self.send_beyond(&request, ApiError::ChannelGone).await?,
            ..=SMALLEST_PAGE => self.send_until_whole(&request, ApiError::ChannelGone).await?,
            _ => self.send(request, ApiError::ChannelGone, self.memory.free()).await?,
        };
        Ok(page::read(body).await?)
    }

    /// Reads a page of a channel's events that match `filter`. `limit` is 1 to 200. The page is read only as far as
    /// memory is free. With a `limit` of 1, the page may exceed the memory limit.
    ///
    /// # Errors
    /// [`ApiError`]. A 404 is [`ApiError::ChannelGone`]. A filter that the service refuses is [`ApiError::Refused`].
    pub async fn search(
        &self,
        channel: ChannelId,
        filter: &Filter,
        limit: u16,
        offset: Option<Offset>,
    ) -> Result<Page, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "events", "search"]);
        let request = request.query(&filter.query()).query(&(("limit", limit), ("offset", offset)));
        let body = match limit {
            1 => self.send_beyond(&request, ApiError::ChannelGone).await?,
            _ => self.send(request, ApiError::ChannelGone, self.memory.free()).await?,
        };
        Ok(page::read(body).await?)
    }

    /// Reads one event by its id.
    ///
    /// # Errors
    /// [`ApiError`]. A 404 is [`ApiError::NotFound`]. If the service returns a different event, the error is
    /// [`ApiError::Malformed`].
    pub async fn event(&self, channel: ChannelId, id: EventId) -> Result<RawEvent, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "events", "search", &id.to_string()]);
        // A page that is already in memory waits for this event, so the event must not wait for memory.
        let body = self.send_beyond(&request, ApiError::NotFound).await?;
        Ok(page::read_one(&body, id)?)
    }

    /// Reads a watcher's state.
    ///
    /// # Errors
    /// [`ApiError`]. A 404 is [`ApiError::NotFound`].
    pub async fn watcher(&self, channel: ChannelId, id: Uuid) -> Result<Watcher, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "watchers", &id.to_string()]);
        let body = self.send(request, ApiError::NotFound, self.memory.exceed(0)).await?;
        Ok(Watcher::read(&body)?)
    }

    /// Sends a poll of the channel, or a health check if `channel` is `None`. If the answer is an error or is not JSON,
    /// returns an excerpt of its body for an operator.
    pub async fn refusal(&self, channel: Option<ChannelId>) -> Option<String> {
        let response = match channel {
            None => self.ask_without_key(self.get(&["health-check"])).await,
            Some(channel) => {
                let request = self.get(&["channels", &channel.to_string(), "events"]);
                self.ask(&request.query(&[("limit", 1)])).await
            }
        };
        let response = response.ok()?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_answer = response.status().is_success() && kind.contains("json");
        if is_answer { None } else { Some(http::excerpt(response, &self.keys.secrets()).await) }
    }

    /// Checks whether the service is up. The request needs no key, so no key is sent and a wrong key is not noticed.
    ///
    /// # Errors
    /// [`ApiError`] unless the status is 2xx.
    pub async fn health(&self) -> Result<(), ApiError> {
        let response = self.ask_without_key(self.get(&["health-check"])).await?;
        self.read(response, ApiError::Refused, self.memory.free()).await.map(drop)
    }
}
