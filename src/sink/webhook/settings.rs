//! The settings of a webhook. The configuration has already checked them.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use super::signature::SigningKeys;
use super::token::OAuth2;
use crate::Compression;
use net::http::ConnectionSettings;
pub use net::turns::Rate;
use record::UrlSuffix;

/// Shown instead of a part of the URL that may be a secret.
const HIDDEN: &str = "…";

/// The longest path segment that is considered a plain word, in bytes.
const MAX_WORD: usize = 20;

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The endpoint. The URL may contain a token: show [`shown_url`](Self::shown_url) instead.
    pub url: Url,
    /// Whether the operator keeps the URL secret.
    pub secret_url: bool,
    /// The keys that sign deliveries. Without keys, deliveries are not signed.
    pub keys: SigningKeys,
    /// Headers that are added to every request, in addition to the headers that the sink sets. The values are never shown.
    pub headers: HeaderMap,
    /// How the sink connects to the endpoint.
    pub connection: ConnectionSettings,
    /// How events are grouped into requests.
    pub dispatch: Dispatch,
    /// How access tokens are obtained, if the endpoint needs them.
    pub oauth2: Option<OAuth2>,
    /// How bodies are compressed. `None` means not at all.
    pub compression: Option<Compression>,
    /// The maximum rate of requests, for all channels together.
    pub rate: Option<Rate>,
    /// The time limit of each request, from connecting to the end of the response. Never zero.
    pub timeout: Duration,
}

/// How events are grouped into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One event per request.
    Single {
        /// How many requests are sent at a time. At least one.
        concurrency: usize,
    },
    /// Several events per request, one request at a time.
    Batches {
        /// The maximum number of events in a batch. At least two.
        events: usize,
        /// The maximum size of a body, in bytes.
        bytes: usize,
        /// How long to wait for more events if a batch is not full.
        wait: Duration,
    },
}

impl Default for Dispatch {
    fn default() -> Self {
        Self::Single { concurrency: 1 }
    }
}

impl Dispatch {
    pub(super) fn batch_bytes(&self) -> Option<usize> {
        if let Self::Batches { bytes, .. } = self { Some(*bytes) } else { None }
    }
}

impl WebhookSettings {
    /// The endpoint's URL with these path segments and this query parameter appended.
    pub(super) fn below(&self, UrlSuffix { path, query }: &UrlSuffix) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url.query_pairs_mut().append_pair(query.0, query.1);
        url
    }

    /// The endpoint's URL for logs and operators. Parts that may be secret are hidden.
    pub fn shown_url(&self) -> String {
        let origin = self.url.origin().ascii_serialization();
        if self.secret_url {
            return format!("{origin}/{HIDDEN}");
        }
        let shown = |segment| if is_word(segment) { segment } else { HIDDEN };
        let path: Vec<_> = self.url.path().split('/').map(shown).collect();
        origin + &path.join("/")
    }

    /// The segments of the path that are never shown.
    pub(super) fn hidden_segments(&self) -> impl Iterator<Item = &str> {
        self.url.path().split('/').filter(|segment| self.secret_url || !is_word(segment))
    }
}

/// Whether the URL has a path segment that is not a plain word, and may therefore be a token.
pub fn has_token(url: &Url) -> bool {
    !url.path().split('/').all(is_word)
}

/// Whether a path segment is a plain word or a version such as `v1`. Tokens are longer, or have digits or capital letters.
fn is_word(segment: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || b"-_.".contains(&byte);
    let is_version = segment.strip_prefix('v').is_some_and(|number| matches!(number.parse(), Ok(0..100)));
    is_version || segment.len() <= MAX_WORD && segment.bytes().all(is_letter)
}

impl fmt::Debug for WebhookSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSettings").field("url", &self.shown_url()).finish_non_exhaustive()
    }
}
