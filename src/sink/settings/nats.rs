//! The settings of a JetStream sink, already validated.

use std::time::Duration;

use url::Url;

use super::subject::Pattern;
use net::http::{Authorities, Identity};
use net::secret::Secret;

/// A stream that events are published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsSettings {
    /// The servers of one cluster, at least one, as `nats` or `tls` URLs. The URLs contain no credentials.
    pub servers: Vec<Url>,
    /// The credentials for the servers.
    pub login: Login,
    /// The certificate authorities to trust instead of the system's.
    pub authorities: Option<Authorities>,
    /// The client certificate, if the server requires one.
    pub identity: Option<Identity>,
    /// The name of the stream.
    pub stream: String,
    /// The pattern for the subjects of events.
    pub subject: Pattern,
    /// The prefix of the subjects of the lanes' positions.
    pub positions: String,
    /// Whether a missing stream is created.
    pub create: bool,
    /// The number of replicas with which the stream is created.
    pub replicas: u8,
    /// The longest time to wait for a connection, and for an answer. Never zero.
    pub timeout: Duration,
}

/// The credentials for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// No user, or the user that the client certificate names.
    None,
    /// The content of a credentials file: a user's JWT and key.
    Credentials(Secret),
    /// A user name and its password.
    Password(String, Secret),
    /// A token.
    Token(Secret),
}

impl NatsSettings {
    /// The servers, as messages show them.
    pub fn shown_servers(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(|url| url.as_str().trim_end_matches('/')).collect();
        servers.join(",")
    }
}
