//! What an operator decides about a Kafka sink, already checked.

use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantNames};

use net::http::{Authorities, Identity};
use net::secret::Secret;

/// A topic that events are produced to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaSettings {
    /// Brokers of one cluster that are asked for the others, at least one, as `host:port`.
    pub brokers: Vec<String>,
    /// How they are reached.
    pub security: Security,
    /// The topic of events.
    pub topic: String,
    /// The topic of lanes' positions, another one.
    pub positions_topic: String,
    /// What the transactional ids of lanes begin with.
    pub transactional_id: String,
    /// Whether topics are made where they are missing.
    pub create: bool,
    /// The partitions of a topic of events that is made. Never zero.
    pub partitions: u16,
    /// How many brokers keep a topic that is made; zero where the cluster decides.
    pub replicas: u8,
    /// Bounds each answer. Never zero.
    pub timeout: Duration,
}

/// TLS, and who we are to the brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Whether connections are by TLS.
    pub tls: bool,
    /// The authorities that TLS trusts instead of the system's.
    pub authorities: Option<Authorities>,
    /// The client's certificate, where the brokers ask for one.
    pub identity: Option<Identity>,
    /// The login by SASL.
    pub login: Option<SaslLogin>,
}

/// A login by SASL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslLogin {
    /// How the password is shown to be known.
    pub mechanism: Mechanism,
    /// The user.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

/// How a password is shown to be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Mechanism {
    /// It is sent.
    Plain,
    /// By a challenge, with SHA-256.
    #[strum(serialize = "scram-sha-256")]
    ScramSha256,
    /// By a challenge, with SHA-512.
    #[default]
    #[strum(serialize = "scram-sha-512")]
    ScramSha512,
}

impl KafkaSettings {
    /// The brokers, for an operator.
    pub fn shown_brokers(&self) -> String {
        self.brokers.join(",")
    }
}
