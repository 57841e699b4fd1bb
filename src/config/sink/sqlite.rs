//! Reads the keys of a SQLite sink, and formats its settings.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::file::shown::{duration_text, size_text};
use super::postgres::{TABLE, TABLE_LIMIT, shown_search};
use super::{Sink, SinkSettings};
use crate::config::database::identifier;
use crate::config::section::{Reported, Section, all};
use crate::config::values::{path, positive_duration, size, word};
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

pub(super) fn line(settings: &SqliteSettings) -> String {
    let SqliteSettings { path, table, search, keep_for, keep_size } = settings;
    let parts = [
        Some(format!("{}, table {table}", path.display())),
        shown_search(*search),
        keep_for.map(|time| format!("kept for {}", duration_text(time))),
        keep_size.map(|size| format!("kept up to {}", size_text(size))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(super) fn json(settings: &SqliteSettings) -> Value {
    json!({
        "path": settings.path.display().to_string(),
        "table": settings.table,
        "search": <&str>::from(settings.search),
        "keep_seconds": settings.keep_for.map(|time| time.as_secs()),
        "keep_size": settings.keep_size,
    })
}
