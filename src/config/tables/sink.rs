//! `[sinks.NAME]`: the sinks, and the format of their records. Each type of sink has a file in `sink/`, which reads its
//! keys.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::channel::Channel;
use super::feed::FeedUsage;
use super::filter;
use crate::config::problem::not_built_in;
use crate::config::reading::values::{positive_duration, word};
use crate::config::reading::{Reported, Section, all};
use crate::config::settings_list::SettingsList;
use net::retry::RetryPolicy;

mod file;
mod kafka;
mod nats;
mod settings;
mod shape;
mod table;
mod webhook;

pub(crate) use settings::SinkType;
pub use settings::{Sink, SinkSettings};

/// The retry waits of a type that has no keys for them.
const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// The retry waits for a database, which may be unavailable for the seconds of a failover.
const DATABASE_RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_millis(500), max_wait: Duration::from_secs(10) };

impl Sink {
    /// Describes the sink for `channeld check`.
    pub fn shown(&self) -> SettingsList {
        let Self { settings, shape, filter, .. } = self;
        let mut shown = vec![("type", json!(<&str>::from(SinkType::from(settings))))];
        shown.extend(match settings {
            SinkSettings::Stdout => Vec::new(),
            SinkSettings::File(settings) => file::shown(settings),
            SinkSettings::Webhook(settings) => webhook::shown(settings),
            SinkSettings::Nats(settings) => nats::shown(settings),
            SinkSettings::Kafka(settings) => kafka::shown(settings),
            SinkSettings::Postgres(settings) => table::shown_postgres(settings),
            SinkSettings::Sqlite(settings) => table::shown_sqlite(settings),
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

/// Reads every sink, and checks it with the channels that use it. Sinks with mistakes are left out. If `is_shared` is
/// true, several instances share the state and the channels.
pub(crate) fn read_all(
    root: &Section<'_>,
    channels: &[Channel],
    feed: &FeedUsage,
    is_shared: bool,
) -> BTreeMap<String, Sink> {
    let (section, mut sinks) = (root.section("sinks"), BTreeMap::new());
    for name in section.names().unwrap_or_default() {
        section.check_name(&name);
        if let Ok(sink) = read(&section.section(&name), feed, is_shared) {
            file::check_conflicts(&section, &name, &sink, &sinks);
            shape::check_use(&section.section(&name), &sink, channels);
            sinks.insert(name, sink);
        }
    }
    sinks
}

fn read(sink: &Section<'_>, feed: &FeedUsage, is_shared: bool) -> Result<Sink, Reported> {
    let kind = sink.required("type", word).inspect_err(|_| sink.pass_over())?;
    if let Some(why) = not_built_in(<&str>::from(kind)) {
        sink.wrong("type", why);
    }
    let read = all!(Sink {
        settings: match kind {
            SinkType::Stdout => Ok(SinkSettings::Stdout),
            SinkType::File => file::read(sink).map(SinkSettings::File),
            SinkType::Webhook => webhook::read(sink).map(Box::new).map(SinkSettings::Webhook),
            SinkType::Nats => nats::read(sink).map(Box::new).map(SinkSettings::Nats),
            SinkType::Kafka => kafka::read(sink).map(Box::new).map(SinkSettings::Kafka),
            SinkType::Postgres => table::read_postgres(sink, feed).map(Box::new).map(SinkSettings::Postgres),
            SinkType::Sqlite => table::read_sqlite(sink, feed).map(SinkSettings::Sqlite),
        },
        retry: match kind {
            SinkType::Webhook => sink.retry_waits(["1s", "1h"]),
            // These waits are short, because a retry is cheap and the events wait.
            SinkType::Nats | SinkType::Kafka => sink.retry_waits(["1s", "10s"]),
            SinkType::Postgres | SinkType::Sqlite => Ok(DATABASE_RETRY),
            SinkType::Stdout | SinkType::File => Ok(RETRY),
        },
        give_up_after: match kind {
            SinkType::Stdout | SinkType::File => Ok(None),
            _ => sink.optional("give_up_after", positive_duration),
        },
        shape: shape::read(sink, kind),
        filter: filter::read(sink, "filter"),
    });
    // If several instances share the channels, a sink on one machine receives only a part of the events.
    if matches!(kind, SinkType::Stdout | SinkType::File | SinkType::Sqlite)
        && !sink.boolean("per_instance", false).unwrap_or(true)
        && is_shared
    {
        let message = "belongs to one machine, but with state.backend = \"postgres\" each event goes to the instance that owns its channel; use a sink that all instances can reach, or set per_instance = true if each machine may have a part of the events";
        sink.wrong("type", message);
    }
    read
}
