//! The client of the service: poll, search, single events, a watcher's state, and health.
//!
//! # Invariants
//!
//! * **Classified by status.** An error's body is shown to people and decides nothing, because a proxy can answer anything;
//!   but a 404 counts as the service's only where its body is the service's error envelope.
//! * **The key goes to the service and nowhere else.** Redirects are not followed. No `Debug`, error or log has the key in
//!   it, even where the service repeats it.
//! * **Bounded.** A body is read up to [`MAX_BODY`], after decompression, and a page up to [`MAX_RECORDS`]. A body is read as
//!   far as there is memory for it.
//! * **No async thread is held up.** A long page is read on another thread, and a body gives way to other tasks piece by
//!   piece.
//! * **Bytes survive.** A [`RawEvent`] holds the service's bytes as they came, valid UTF-8 or not.
//! * **No retries.** The caller waits and asks again: [`ApiError`] says what to do next.
//!
//! # Cancellation
//!
//! Every call may be dropped at any point; the connection it used is then closed or drained by the pool.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use url::Url;
use uuid::Uuid;

use net::http;
use net::memory::ChannelMemory;
use net::secret::Secret;
use proof::event::{ChannelId, EventId, Offset, RawEvent};

mod buffers;
mod envelope;
mod error;
mod filter;
mod page;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transport;
mod watcher;
pub mod windows;

pub use error::{Answer, ApiError, BadAnswer, SettingsError, Trouble};
pub use filter::{Created, Filter};
pub use page::{MAX_RECORDS, Page};
pub use watcher::Watcher;

use buffers::Buffers;

/// The fewest events that are asked for where memory is short: a page of one could not be told from the top of a longer
/// range, and a page of two, requested one offset early from a service that includes that offset, might hold nothing new.
pub const SMALLEST_PAGE: u16 = 3;

/// No answer is read beyond this, counted after decompression.
pub const MAX_BODY: usize = 64 * 1024 * 1024;

/// How to reach the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `http` or `https`, with the version segment at its end (`…/v1`); a slash after it makes no difference.
    pub base_url: Url,
    /// The key, as the service gave it.
    pub api_key: Secret,
    /// How long connecting may take, TLS included.
    pub connect_timeout: Duration,
    /// How long a whole request may take, from connecting to the last byte of the body.
    pub request_timeout: Duration,
}

/// A client of the service. Cheap to clone; all clones share one connection pool.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    /// The base URL has no slash at its end.
    settings: Arc<Settings>,
    authorization: HeaderValue,
    max_body: usize,
    buffers: Arc<Buffers>,
    memory: Arc<ChannelMemory>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.settings).finish()
    }
}

/// Two clients are the same where they ask the same service in the same way.
impl PartialEq for Client {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Client {
    /// This client, whose bodies are counted as that channel's memory.
    #[must_use]
    pub fn counted_by(self, memory: Arc<ChannelMemory>) -> Self {
        Self { memory, ..self }
    }

    /// Reads a page of a channel's newest events, or of those after `offset` (spec/wire.md, "`offset` on poll", says
    /// what is not known about it). `limit` is 1 to 200. A page of more than [`SMALLEST_PAGE`] events is read only as far
    /// as memory is free. A smaller one waits for memory, and a single event has it beyond the limit.
    ///
    /// # Errors
    /// [`ApiError`]; a 404 is [`ApiError::ChannelGone`].
    pub async fn poll(&self, channel: ChannelId, offset: Option<Offset>, limit: u16) -> Result<Page, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "events"]);
        let request = self.authorized(request.query(&(("limit", limit), ("offset", offset))));
        let body = match limit {
            // To look at the newest event must not wait for the pages in hand.
            1 => self.send_beyond(&request, ApiError::ChannelGone).await?,
            ..=SMALLEST_PAGE => self.send_until_whole(&request, ApiError::ChannelGone).await?,
            _ => self.send(request, ApiError::ChannelGone, self.memory.free()).await?,
        };
        Ok(page::read(body).await?)
    }

    /// Reads a page of a channel's events that match `filter`. `limit` is 1 to 200. It is read only as far as memory is free,
    /// but for a single event.
    ///
    /// # Errors
    /// [`ApiError`]; a 404 is [`ApiError::ChannelGone`], a filter that the service refuses [`ApiError::Refused`].
    pub async fn search(
        &self,
        channel: ChannelId,
        filter: &Filter,
        limit: u16,
        offset: Option<Offset>,
    ) -> Result<Page, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "events", "search"]);
        let request = request.query(&filter.query()).query(&(("limit", limit), ("offset", offset)));
        let request = self.authorized(request);
        let body = match limit {
            1 => self.send_beyond(&request, ApiError::ChannelGone).await?,
            _ => self.send(request, ApiError::ChannelGone, self.memory.free()).await?,
        };
        Ok(page::read(body).await?)
    }

    /// Reads one event by its id.
    ///
    /// # Errors
    /// [`ApiError`]; a 404 is [`ApiError::NotFound`], and another event than the one asked for
    /// [`ApiError::Malformed`].
    pub async fn event(&self, channel: ChannelId, id: EventId) -> Result<RawEvent, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "events", "search", &id.to_string()]);
        // A page waits for it, which holds memory itself.
        let body = self.send_beyond(&self.authorized(request), ApiError::NotFound).await?;
        Ok(page::read_one(&body, id)?)
    }

    /// Reads a watcher's state.
    ///
    /// # Errors
    /// [`ApiError`]; a 404 is [`ApiError::NotFound`].
    pub async fn watcher(&self, channel: ChannelId, id: Uuid) -> Result<Watcher, ApiError> {
        let request = self.get(&["channels", &channel.to_string(), "watchers", &id.to_string()]);
        let body = self.send(self.authorized(request), ApiError::NotFound, self.memory.exceed(0)).await?;
        Ok(Watcher::read(&body)?)
    }

    /// An excerpt of the body that an operator is given in place of the health, or of a channel's events: an error, or what is
    /// no JSON.
    pub async fn refusal(&self, channel: Option<ChannelId>) -> Option<String> {
        let request = match channel {
            None => self.get(&["health-check"]),
            Some(channel) => {
                let request = self.get(&["channels", &channel.to_string(), "events"]);
                self.authorized(request.query(&[("limit", 1)]))
            }
        };
        let response = request.send().await.ok()?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_answer = response.status().is_success() && kind.contains("json");
        if is_answer { None } else { Some(http::excerpt(response, &[self.settings.api_key.expose()]).await) }
    }

    /// Asks whether the service is up. Needs no key, so none is sent and a wrong one goes unnoticed.
    ///
    /// # Errors
    /// [`ApiError`], unless the answer is a 2xx.
    pub async fn health(&self) -> Result<(), ApiError> {
        self.send(self.get(&["health-check"]), ApiError::Refused, self.memory.free()).await.map(drop)
    }
}
