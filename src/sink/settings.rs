//! The validated settings of the sinks that a build can omit. Every build has the settings, so that it can read every
//! configuration.

#[cfg(feature = "nats")]
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantNames};
use url::Url;

use net::http::{Authorities, Identity};
use net::postgres::ServerSettings;
use net::secret::Secret;
use proof::event::ChannelId;
#[cfg(feature = "nats")]
use proof::event::EventType;
use record::{ChannelRef, Record};

/// The maximum length of a value in a subject, in characters. A server accepts 4 KiB for the protocol line that contains
/// the subject.
const VALUE_LIMIT: usize = 200;

const PATTERN_LIMIT: usize = 500;

/// A topic that events are produced to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// The bootstrap brokers of one cluster, as `host:port`. At least one.
    pub brokers: Vec<String>,
    /// How to connect and log in to the brokers.
    pub security: Security,
    /// The topic of events.
    pub topic: String,
    /// The topic of the lanes' positions. It differs from `topic`.
    pub positions_topic: String,
    /// The prefix of the lanes' transactional ids.
    pub transactional_id: String,
    /// Whether missing topics are created.
    pub create: bool,
    /// The number of partitions of the topic of events, if channeld creates it. Never zero.
    pub partitions: u16,
    /// The replication factor of the topics that channeld creates. If it is zero, the cluster decides.
    pub replicas: u8,
    /// The longest time to wait for an answer. Never zero.
    pub timeout: Duration,
}

/// TLS, and the identity that channeld presents to the brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Whether connections use TLS.
    pub tls: bool,
    /// The certificate authorities to trust instead of the system's.
    pub authorities: Option<Authorities>,
    /// The client certificate, if the brokers require one.
    pub identity: Option<Identity>,
    /// The SASL login.
    pub login: Option<SaslLogin>,
}

/// A SASL login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslLogin {
    /// How the client proves that it knows the password.
    pub mechanism: Mechanism,
    /// The user name.
    pub user: String,
    /// The password of the user.
    pub password: Secret,
}

/// How the client proves that it knows the password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Mechanism {
    /// The client sends the password.
    Plain,
    /// The client answers a challenge, with SHA-256.
    #[strum(serialize = "scram-sha-256")]
    ScramSha256,
    /// The client answers a challenge, with SHA-512.
    #[default]
    #[strum(serialize = "scram-sha-512")]
    ScramSha512,
}

impl KafkaSettings {
    /// The brokers, for messages.
    pub fn shown_brokers(&self) -> String {
        self.brokers.join(",")
    }
}

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
    /// The number of replicas of the stream, if channeld creates it.
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
    /// The servers, for messages.
    pub fn shown_servers(&self) -> String {
        let servers: Vec<_> = self.servers.iter().map(|url| url.as_str().trim_end_matches('/')).collect();
        servers.join(",")
    }
}

/// The pattern from which the subject of an event is made. It may contain `{channel}`, `{channel_id}` and `{type}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

const CHANNEL: &str = "{channel}";
const CHANNEL_ID: &str = "{channel_id}";
/// Replaced with the event's type. Dots in the type separate tokens.
const TYPE: &str = "{type}";

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern = Self(text.to_owned());
        let shape = pattern.filled("x", "x", "x");
        if shape.contains(['{', '}']) {
            return Err("may name {channel}, {channel_id} and {type}, and must have no other braces");
        }
        if !shape.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '*' | '>')) {
            return Err("must consist of visible ASCII characters other than * and >");
        }
        if shape.split('.').any(str::is_empty) || text.len() > PATTERN_LIMIT {
            return Err("must be tokens separated by single dots, with at most 500 characters");
        }
        let start = text.split('{').next().unwrap_or_default();
        if !start.contains('.') || start.starts_with('$') {
            return Err("must begin with a word and a dot, such as \"channeld.\", and not with $");
        }
        Ok(pattern)
    }
}

impl Pattern {
    /// The subject of an event. It depends only on the event and its channel.
    pub fn of(&self, record: &Record) -> String {
        let ChannelRef { name, id } = &record.channel;
        self.filled(name, &id.to_string(), &cleaned(record.kind.as_ref()))
    }

    /// A filter that matches the subjects of all events of a channel.
    pub fn filter(&self, channel: &ChannelRef) -> String {
        self.wildcard(&channel.name, &channel.id.to_string())
    }

    /// A filter that matches the subjects of all events.
    pub fn filter_of_all(&self) -> String {
        self.wildcard("*", "*")
    }

    /// The subjects of the known types of events of a channel.
    #[cfg(feature = "nats")]
    pub(crate) fn samples(&self, channel: &ChannelRef) -> BTreeSet<String> {
        let (name, id) = (&channel.name, channel.id.to_string());
        EventType::KNOWN.iter().map(|kind| self.filled(name, &id, &cleaned(kind))).collect()
    }

    /// Whether the subjects contain the name of the channel.
    pub fn has_channel_name(&self) -> bool {
        self.0.contains(CHANNEL)
    }

    /// The first token.
    pub fn first(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// The pattern as a filter. A type can have several tokens. Therefore the first token that contains a type becomes `>`,
    /// and the tokens after it are left out.
    fn wildcard(&self, channel: &str, id: &str) -> String {
        let subject = self.filled(channel, id, TYPE);
        // A wildcard must be a whole token.
        let whole = |token| if str::contains(token, '*') { "*" } else { token };
        let before_type = subject.split('.').take_while(|token| !token.contains(TYPE)).map(whole);
        before_type.chain(subject.contains(TYPE).then_some(">")).collect::<Vec<_>>().join(".")
    }

    /// The pattern with these values. The name of the channel is inserted last, so that text in the name is never replaced
    /// as a placeholder.
    fn filled(&self, channel: &str, id: &str, kind: &str) -> String {
        self.0.replace(TYPE, kind).replace(CHANNEL_ID, id).replace(CHANNEL, channel)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Converts a text to a part of a subject. Dots separate tokens. Every other character except letters, digits, - and _
/// becomes _. An empty token becomes _ too.
fn cleaned(text: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let text: String = text.chars().take(VALUE_LIMIT).map(legal).collect();
    let tokens: Vec<_> = text.split('.').map(|token| if token.is_empty() { "_" } else { token }).collect();
    tokens.join(".")
}

/// A table in a PostgreSQL database. Its names are identifiers that need no escaping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The database, and how to connect to it.
    pub server: ServerSettings,
    /// The schema.
    pub schema: String,
    /// The table in the schema.
    pub table: String,
    /// Whether missing tables and columns are created.
    pub create: bool,
    /// Whether a second table has one row for each operation.
    pub operations: bool,
    /// The kind of full-text search.
    pub search: Search,
    /// The PostgreSQL channel that is notified of each transaction. `None` for no notification.
    pub notify: Option<String>,
    /// Whether a feed reads the table. A further table then contains the cursors of the feed's consumers, and each delivery
    /// notifies the feeds of other processes.
    pub feed: bool,
}

/// An SQLite database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteSettings {
    /// The path of the database's file.
    pub path: PathBuf,
    /// The name of the table: an identifier that needs no escaping.
    pub table: String,
    /// Whether a second table has one row for each operation.
    pub operations: bool,
    /// The kind of full-text search.
    pub search: Search,
    /// If set, rows that were written longer ago than this are deleted.
    pub keep_for: Option<Duration>,
    /// Rows that one of these consumers has not committed are not deleted because of `keep_for`.
    pub keep_for_consumers: Vec<FeedConsumer>,
    /// If set, the oldest rows are deleted while the database uses more bytes than this.
    pub keep_size: Option<u64>,
    /// Whether a feed reads the table. A further table then contains the cursors of the feed's consumers.
    pub feed: bool,
}

/// A consumer of the feed, in one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedConsumer {
    /// The name of the consumer.
    pub consumer: String,
    /// The channel.
    pub channel: ConsumedChannel,
}

/// A channel that a consumer of the feed may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumedChannel {
    /// A channel of the configuration.
    Known(ChannelId),
    /// The name of a channel that `[discover]` has not added. The table can contain its events from an earlier run, for example if
    /// `discovered.json` was lost.
    Named(String),
}

/// The kind of full-text search that a table supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Search {
    /// No search.
    #[default]
    None,
    /// Search for words.
    Words,
    /// Search for parts of words. A part has at least three characters.
    Trigrams,
}

#[cfg(test)]
mod tests;
