//! `[sinks.NAME]`: the named destinations of events and the shape of the records. Each type reads its own keys in a file
//! below.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantNames};

use super::built_in::not_built_in;
use super::filter;
use super::section::{Reported, Section, all};
use super::values::{positive_duration, word};
use ::record::{Filter, Shape};
use ::sink::{
    self, File, FileSettings, KafkaSettings, NatsSettings, OpenFiles, PostgresSettings, SinkError, SqliteSettings,
    Stdout, Webhook, WebhookSettings,
};
use net::retry::RetryPolicy;
use telemetry::metrics::Metrics;

mod file;
mod kafka;
mod nats;
mod postgres;
pub(super) mod shape;
mod sqlite;
mod webhook;

/// The retry waits of a type that has no keys for them.
const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// The retry waits for a database, which may be unavailable for the seconds of a failover.
const DATABASE_RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_millis(500), max_wait: Duration::from_secs(10) };

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
    /// The events that the sink gets, unless a channel sets another filter. `None`: all events.
    pub filter: Option<Filter>,
}

/// The settings of a sink, by its type.
#[derive(Clone, Debug, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(name(SinkType), doc = "The word that `type` is set to.")]
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
    /// Makes the sink of this name. `open` lists the open files of all sinks. Opens nothing and sends nothing yet.
    ///
    /// # Errors
    /// If it cannot be made on this machine.
    pub fn build(&self, name: &str, open: &OpenFiles, metrics: &Metrics) -> Result<Arc<dyn sink::Sink>, SinkError> {
        Ok(match self {
            Self::Stdout => Arc::new(Stdout::new()?),
            Self::File(settings) => Arc::new(File::new(settings.clone(), open.clone(), metrics.upkeep_failures(name))),
            Self::Webhook(settings) => Arc::new(Webhook::new((**settings).clone())?.counted_by(metrics.clone())),
            Self::Nats(settings) => sink::nats((**settings).clone())?,
            Self::Kafka(settings) => sink::kafka((**settings).clone())?,
            Self::Postgres(settings) => sink::postgres(name, (**settings).clone())?,
            Self::Sqlite(settings) => sink::sqlite(settings.clone(), metrics.upkeep_failures(name))?,
        })
    }

    /// The settings for people, in one line that begins with the type. Contains no secret.
    pub fn shown(&self) -> String {
        match self {
            Self::Stdout => "stdout".to_owned(),
            Self::File(settings) => format!("file {}", file::shown::line(settings)),
            Self::Webhook(settings) => format!("webhook {}", webhook::shown::line(settings)),
            Self::Nats(settings) => format!("nats {}", nats::line(settings)),
            Self::Kafka(settings) => format!("kafka {}", kafka::line(settings)),
            Self::Postgres(settings) => format!("postgres {}", postgres::line(settings)),
            Self::Sqlite(settings) => format!("sqlite {}", sqlite::line(settings)),
        }
    }

    /// The settings for machines, by name. Contains no secret.
    pub fn json(&self) -> Value {
        let mut shown = match self {
            Self::Stdout => json!({}),
            Self::File(settings) => file::shown::json(settings),
            Self::Webhook(settings) => webhook::shown::json(settings),
            Self::Nats(settings) => nats::json(settings),
            Self::Kafka(settings) => kafka::json(settings),
            Self::Postgres(settings) => postgres::json(settings),
            Self::Sqlite(settings) => sqlite::json(settings),
        };
        shown["type"] = <&str>::from(SinkType::from(self)).into();
        shown
    }
}

/// Reads every sink. Sinks with mistakes are left out.
pub(super) fn read_all(section: &Section<'_>) -> BTreeMap<String, Sink> {
    let mut sinks = BTreeMap::new();
    for name in section.names().unwrap_or_default() {
        section.check_name(&name);
        if let Ok(sink) = read(&section.section(&name)) {
            file::check_conflicts(section, &name, &sink, &sinks);
            sqlite::check_conflicts(section, &name, &sink, &sinks);
            sinks.insert(name, sink);
        }
    }
    sinks
}

fn read(sink: &Section<'_>) -> Result<Sink, Reported> {
    let kind = sink.required("type", word).inspect_err(|_| sink.pass_over())?;
    if let Some(why) = not_built_in(<&str>::from(kind)) {
        sink.wrong("type", why);
    }
    let has_waits = matches!(kind, SinkType::Webhook | SinkType::Nats | SinkType::Kafka);
    let has_tables = matches!(kind, SinkType::Postgres | SinkType::Sqlite);
    let read = all!(Sink {
        settings: match kind {
            SinkType::Stdout => Ok(SinkSettings::Stdout),
            SinkType::File => file::read(sink).map(SinkSettings::File),
            SinkType::Webhook => webhook::read(sink).map(Box::new).map(SinkSettings::Webhook),
            SinkType::Nats => nats::read(sink).map(Box::new).map(SinkSettings::Nats),
            SinkType::Kafka => kafka::read(sink).map(Box::new).map(SinkSettings::Kafka),
            SinkType::Postgres => postgres::read(sink).map(Box::new).map(SinkSettings::Postgres),
            SinkType::Sqlite => sqlite::read(sink).map(SinkSettings::Sqlite),
        },
        retry: match kind {
            SinkType::Webhook => sink.retry_waits(),
            SinkType::Nats => sink.retry_waits_or(nats::RETRY),
            SinkType::Kafka => sink.retry_waits_or(kafka::RETRY),
            SinkType::Postgres | SinkType::Sqlite => Ok(DATABASE_RETRY),
            SinkType::Stdout | SinkType::File => Ok(RETRY),
        },
        give_up_after: if has_waits || has_tables {
            sink.optional("give_up_after", positive_duration)
        } else {
            Ok(None)
        },
        shape: shape::read(sink, kind),
        filter: filter::read(sink, "filter"),
    })?;
    shape::check_dispatch(sink, &read.settings, &read.shape);
    Ok(read)
}
