//! What an operator decides about a webhook, already checked.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use super::pace::Rate;
use super::signature::SigningKeys;
use super::token::OAuth2;
use crate::Compression;
use net::http::Connection;
use record::Below;

/// Shown in the place of what may be a secret.
const HIDDEN: &str = "…";

/// The longest part of a path that is taken for a word.
const MAX_WORD: usize = 20;

/// An endpoint that events are posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The endpoint: http or https. It may hold a token: show [`shown_url`](Self::shown_url) instead.
    pub url: Url,
    /// Whether the operator keeps the URL secret.
    pub secret_url: bool,
    /// What deliveries are signed with. Without keys they are not signed.
    pub keys: SigningKeys,
    /// Headers of every request, beside those that the sink makes itself. The values are not shown.
    pub headers: HeaderMap,
    /// How the endpoint is reached.
    pub connection: Connection,
    /// How events go into requests.
    pub dispatch: Dispatch,
    /// Where access tokens come from.
    pub oauth2: Option<OAuth2>,
    /// How bodies are compressed.
    pub compression: Option<Compression>,
    /// The rate of requests, of all channels together.
    pub rate: Option<Rate>,
    /// Bounds each request from connecting to the end of the answer. Never zero.
    pub timeout: Duration,
}

/// How events go into requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// One event a request.
    Single {
        /// Requests at a time, at least one.
        concurrency: usize,
    },
    /// Several events a request, one request at a time.
    Batches {
        /// The most events in one, at least two.
        events: usize,
        /// The largest body, in bytes.
        bytes: usize,
        /// How long to wait for more events where there are fewer.
        wait: Duration,
    },
}

impl Default for Dispatch {
    fn default() -> Self {
        Self::Single { concurrency: 1 }
    }
}

impl Dispatch {
    /// The largest body of a batch, in bytes.
    pub(super) fn batch_bytes(&self) -> Option<usize> {
        match self {
            Self::Single { .. } => None,
            Self::Batches { bytes, .. } => Some(*bytes),
        }
    }
}

impl WebhookSettings {
    /// An address below the endpoint's.
    pub(super) fn below(&self, Below { path, query }: &Below) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        let query = match url.query() {
            Some(own) if !own.is_empty() => format!("{own}&{query}"),
            _ => (*query).to_owned(),
        };
        url.set_query(Some(&query));
        url
    }

    /// The endpoint without what may be a secret, for logs and people.
    pub fn shown_url(&self) -> String {
        let origin = self.url.origin().ascii_serialization();
        if self.secret_url {
            return format!("{origin}/{HIDDEN}");
        }
        let shown = |segment| if is_word(segment) { segment } else { HIDDEN };
        let path: Vec<_> = self.url.path().split('/').map(shown).collect();
        origin + &path.join("/")
    }
}

/// Whether a part of the path is no plain word, and so perhaps a token.
pub fn has_token(url: &Url) -> bool {
    !url.path().split('/').all(is_word)
}

/// Whether a part of a path is a plain word or a version such as `v1`. Tokens are longer, or have digits or capitals.
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
