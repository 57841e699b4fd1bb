//! The settings of a Kafka sink, already validated.

use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantNames};

use net::http::{Authorities, Identity};
use net::secret::Secret;

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
    /// The number of partitions with which the topic of events is created. Never zero.
    pub partitions: u16,
    /// The replication factor with which topics are created. If it is zero, the cluster decides.
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
    /// The brokers, as messages show them.
    pub fn shown_brokers(&self) -> String {
        self.brokers.join(",")
    }
}
