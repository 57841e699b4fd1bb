//! Reads and describes the settings of a SQLite sink.

use std::collections::BTreeMap;

use serde_json::json;

use super::postgres::{TABLE, TABLE_LIMIT};
use super::settings::{Sink, SinkSettings};
use crate::config::reading::values::{path, positive_duration, size, word};
use crate::config::reading::{Reported, Section, all};
use crate::config::shown::Shown;
use crate::config::tables::database::identifier;
use ::sink::{Place, Search, SqliteSettings};

pub(super) fn read(sink: &Section<'_>) -> Result<SqliteSettings, Reported> {
    all!(SqliteSettings {
        path: sink.required("path", path),
        table: sink.or("table", identifier(TABLE_LIMIT, TABLE), TABLE),
        search: sink.or("search", word, Search::None.into()),
        keep_for: sink.optional("keep_for", positive_duration),
        keep_size: sink.optional("keep_size", size),
    })
}

pub(super) fn shown(settings: &SqliteSettings) -> Shown {
    vec![
        ("path", json!(settings.path)),
        ("table", json!(settings.table)),
        ("search", json!(<&str>::from(settings.search))),
        ("keep_seconds", json!(settings.keep_for.map(|time| time.as_secs()))),
        ("keep_size", json!(settings.keep_size)),
    ]
}

/// Records a problem if the sink `name` uses the file of another sink.
pub(super) fn check_conflicts(sinks: &Section<'_>, name: &str, sink: &Sink, others: &BTreeMap<String, Sink>) {
    let file = |sink: &Sink| match &sink.settings {
        SinkSettings::Sqlite(settings) => Some((true, Place::of(&settings.path))),
        SinkSettings::File(settings) => Some((false, Place::of(&settings.path))),
        _ => None,
    };
    let Some((is_database, place)) = file(sink) else { return };
    for (other_name, other) in others {
        if let Some((other_is_database, other)) = file(other)
            && (is_database || other_is_database)
            && place.is(&other)
        {
            let other = sinks.key.at(other_name);
            sinks.section(name).wrong("path", format!("is the file of {other} too; give each sink a file of its own"));
        }
    }
}
