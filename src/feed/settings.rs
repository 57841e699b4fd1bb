//! The settings of the feed, which a reload can replace while it serves.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

use net::http::Identity;

/// The address of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address. Every request needs a token.
    Tcp(SocketAddr),
    /// The path of a Unix socket with mode 0600. A request without a token may read every channel of the feed.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The settings of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedSettings {
    /// The certificate of the server. `None` for plain HTTP.
    pub identity: Option<Identity>,
    /// The channels whose events are in the table.
    pub channels: Vec<FeedChannel>,
    /// The consumers and their tokens.
    pub consumers: Vec<Consumer>,
    /// The largest number of simultaneous requests.
    pub connections: usize,
    /// The largest number of simultaneous requests of one consumer, with all its tokens.
    pub connections_per_consumer: usize,
    /// How long a lease is valid.
    pub lease: Duration,
}

/// A channel that the feed serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedChannel {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Its id in the service.
    pub id: Uuid,
}

/// An application that reads the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// The name under which its cursors are stored.
    pub name: Arc<str>,
    /// The hashes of its tokens. Several are valid at once, so that a token can be replaced without an interruption.
    pub tokens: Vec<TokenHash>,
    /// The names of the channels that it may read.
    pub channels: Vec<Arc<str>>,
}

/// The SHA-256 hash of a token. The token itself is not kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a token.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Compares two hashes. The duration of the comparison does not depend on the hashes.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash")
    }
}

impl FeedSettings {
    /// The channel with this name.
    pub(crate) fn channel(&self, name: &str) -> Option<&FeedChannel> {
        self.channels.iter().find(|channel| &*channel.name == name)
    }

    /// The consumer to whom a token belongs. Every token is compared, so the duration does not reveal which token is similar.
    pub(crate) fn consumer_of(&self, token: &TokenHash) -> Option<&Consumer> {
        self.consumers.iter().fold(None, |found, consumer| {
            let is_own = consumer.tokens.iter().fold(false, |is_own, own| is_own | own.is(token));
            if is_own { Some(consumer) } else { found }
        })
    }
}
