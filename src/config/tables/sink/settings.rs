//! A configured sink: the settings of its type, and the settings that all types share.

use std::sync::Arc;
use std::time::Duration;

use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantNames};

use ::record::{Filter, Shape};
use ::sink::{
    self, File, FileSettings, KafkaSettings, NatsSettings, OpenFiles, PostgresSettings, SinkError, SqliteSettings,
    Stdout, Webhook, WebhookSettings,
};
use net::retry::RetryPolicy;
use telemetry::metrics::Metrics;

/// `[sinks.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// Where events go.
    pub settings: SinkSettings,
    /// The waits between retries while the sink refuses.
    pub retry: RetryPolicy,
    /// An event becomes a dead letter after it was refused for this time. `None`: never.
    pub give_up_after: Option<Duration>,
    /// The shape of the records.
    pub shape: Shape,
    /// Selects the events for the sink, unless a channel sets another filter. `None`: all events.
    pub filter: Option<Filter>,
}

/// The settings of a sink, by its type.
#[derive(Clone, Debug, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(SinkType), doc = "The value of `type`.")]
#[strum_discriminants(derive(EnumString, IntoStaticStr, VariantNames), strum(serialize_all = "lowercase"))]
pub enum SinkSettings {
    /// Standard output, which has no settings.
    Stdout,
    /// A file.
    File(FileSettings),
    /// A webhook.
    Webhook(Box<WebhookSettings>),
    /// A NATS JetStream stream.
    Nats(Box<NatsSettings>),
    /// A Kafka topic.
    Kafka(Box<KafkaSettings>),
    /// A table of a PostgreSQL database.
    Postgres(Box<PostgresSettings>),
    /// A table of a SQLite database.
    Sqlite(SqliteSettings),
}

impl SinkSettings {
    /// Creates the sink with this name, but does not open a file or a connection yet. `open` lists the open files of all
    /// sinks.
    ///
    /// # Errors
    /// If the sink cannot be created on this machine.
    pub fn build(&self, name: &str, open: &OpenFiles, metrics: &Metrics) -> Result<Arc<dyn sink::Sink>, SinkError> {
        Ok(match self {
            Self::Stdout => Arc::new(Stdout::new()?),
            Self::File(settings) => Arc::new(File::new(settings.clone(), open.clone(), metrics.upkeep_failures(name))),
            Self::Webhook(settings) => Arc::new(Webhook::new((**settings).clone(), metrics.clone())?),
            Self::Nats(settings) => sink::nats((**settings).clone())?,
            Self::Kafka(settings) => sink::kafka((**settings).clone())?,
            Self::Postgres(settings) => sink::postgres(name, (**settings).clone())?,
            Self::Sqlite(settings) => sink::sqlite(settings.clone(), metrics.upkeep_failures(name))?,
        })
    }
}
