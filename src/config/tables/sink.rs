//! `[sinks.NAME]`: the named destinations of events and the shape of the records. Each type reads its own keys in a file
//! below.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::filter;
use crate::config::built_in::not_built_in;
use crate::config::reading::values::{positive_duration, word};
use crate::config::reading::{Reported, Section, all};
use crate::config::shown::Shown;
use net::retry::RetryPolicy;

mod file;
mod kafka;
mod nats;
mod postgres;
mod settings;
pub(crate) mod shape;
mod sqlite;
mod webhook;

pub(crate) use settings::SinkType;
pub use settings::{Sink, SinkSettings};

/// The retry waits of a type that has no keys for them.
const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// The retry waits for a database, which may be unavailable for the seconds of a failover.
const DATABASE_RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_millis(500), max_wait: Duration::from_secs(10) };

impl Sink {
    /// Describes the sink for `channeld check`.
    pub fn shown(&self) -> Shown {
        let Self { settings, shape, filter, .. } = self;
        let mut shown = vec![("type", json!(<&str>::from(SinkType::from(settings))))];
        shown.extend(match settings {
            SinkSettings::Stdout => Vec::new(),
            SinkSettings::File(settings) => file::shown(settings),
            SinkSettings::Webhook(settings) => webhook::shown(settings),
            SinkSettings::Nats(settings) => nats::shown(settings),
            SinkSettings::Kafka(settings) => kafka::shown(settings),
            SinkSettings::Postgres(settings) => postgres::shown(settings),
            SinkSettings::Sqlite(settings) => sqlite::shown(settings),
        });
        let template = shape.template.as_ref().and_then(|template| template.shipped());
        shown.extend([
            ("format", json!(<&str>::from(shape.format))),
            ("template", json!(template.map(<&str>::from))),
            ("include_proof", json!(shape.include_proof)),
            ("filtered", json!(filter.is_some())),
        ]);
        shown
    }
}

/// Reads every sink. Sinks with mistakes are left out.
pub(crate) fn read_all(section: &Section<'_>) -> BTreeMap<String, Sink> {
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
