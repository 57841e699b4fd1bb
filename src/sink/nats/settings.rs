//! What an operator decides about a JetStream sink, already checked.

use std::time::Duration;

use url::Url;

use super::subject::Pattern;
use net::http::{Authorities, Identity};
use net::secret::Secret;

/// A stream that events are published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// The servers of one cluster, at least one: nats or tls. They hold no credentials.
    pub servers: Vec<Url>,
    /// What the servers are told about who we are.
    pub login: Login,
    /// The authorities that TLS trusts instead of the system's.
    pub authorities: Option<Authorities>,
    /// The client's certificate, where the server asks for one.
    pub identity: Option<Identity>,
    /// The stream's name.
    pub stream: String,
    /// The subjects of events.
    pub subject: Pattern,
    /// What the subjects of lanes' positions begin with.
    pub positions: String,
    /// Whether the stream is made where it is missing.
    pub create: bool,
    /// How many servers keep a stream that is made.
    pub replicas: u8,
    /// Bounds each connection and each answer. Never zero.
    pub timeout: Duration,
}

/// Who we are to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// No user, or the one that the client's certificate names.
    None,
    /// What a credentials file holds: a user's JWT and its key.
    Credentials(Secret),
    /// A user and its password.
    Password(String, Secret),
    /// A token.
    Token(Secret),
}

impl NatsSettings {
    /// Whether the connection is by TLS whatever the server says.
    pub(super) fn requires_tls(&self) -> bool {
        self.authorities.is_some() || self.identity.is_some() || self.servers.iter().any(|url| url.scheme() == "tls")
    }

    /// The servers, for an operator.
    pub fn shown_servers(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(|url| url.as_str().trim_end_matches('/')).collect();
        servers.join(",")
    }
}
