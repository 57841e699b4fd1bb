//! Reads and describes the settings of the sinks that write tables: PostgreSQL and SQLite.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::json;

use crate::config::reading::values::{path, positive_duration, size, text_if, unless_empty, word};
use crate::config::reading::{Reported, Section, all};
use crate::config::settings_list::SettingsList;
use crate::config::tables::feed::FeedUsage;
use crate::config::tables::server::{NAME_LIMIT, identifier, read_server};
use ::sink::{FeedConsumer, PostgresSettings, Search, SqliteSettings};

/// The default name of the table.
const TABLE: &str = "events";

/// The longest table name. Other names are derived from it, and PostgreSQL limits names to 63 bytes.
const TABLE_LIMIT: usize = 48;

pub(super) fn read_postgres(sink: &Section<'_>, feed: &FeedUsage) -> Result<PostgresSettings, Reported> {
    all!(PostgresSettings {
        server: read_server(sink, true),
        schema: sink.or("schema", identifier(NAME_LIMIT, "public"), "public"),
        table: sink.or("table", identifier(TABLE_LIMIT, TABLE), TABLE),
        create: sink.boolean("create", true),
        operations: sink.boolean("operations", false),
        search: sink.or("search", word, Search::None.into()),
        notify: sink.optional("notify", unless_empty(identifier(NAME_LIMIT, "channeld_events"))).map(Option::flatten),
        feed: Ok(feed.reads(sink.key.name())),
    })
}

pub(super) fn shown_postgres(settings: &PostgresSettings) -> SettingsList {
    vec![
        ("database", json!(settings.server.place())),
        ("schema", json!(settings.schema)),
        ("table", json!(settings.table)),
        ("create", json!(settings.create)),
        ("operations", json!(settings.operations)),
        ("search", json!(<&str>::from(settings.search))),
        ("notify", json!(settings.notify)),
        ("client_certificate", json!(settings.server.identity.is_some())),
        ("ca_file", json!(settings.server.authorities.is_some())),
    ]
}

pub(super) fn read_sqlite(sink: &Section<'_>, feed: &FeedUsage) -> Result<SqliteSettings, Reported> {
    all!(SqliteSettings {
        path: sink.required("path", sqlite_path),
        table: sink.or("table", sqlite_table, TABLE),
        operations: sink.boolean("operations", false),
        search: sink.or("search", word, Search::None.into()),
        keep_for: sink.optional("keep_for", positive_duration),
        keep_for_consumers: read_consumers(sink, feed, matches!(keep_for, Ok(None))),
        keep_size: sink.optional("keep_size", size),
        feed: Ok(feed.reads(sink.key.name())),
    })
}

/// Reads the consumers of the feed whose events are kept for longer than `keep_for`.
fn read_consumers(
    sink: &Section<'_>,
    feed: &FeedUsage,
    are_all_rows_kept: bool,
) -> Result<Vec<FeedConsumer>, Reported> {
    const KEY: &str = "keep_for_consumers";
    if !feed.reads(sink.key.name()) {
        let message = "is set, but no feed reads this table; set feed.sink to the name of this sink, or remove the key";
        return sink.list(KEY)?.map_or(Ok(Vec::new()), |_| Err(sink.wrong(KEY, message)));
    }
    let consumer = |_, name: &str| feed.consumer(name);
    let Some(consumers) = sink.items(KEY, "is empty; name a consumer of the feed", consumer)? else {
        return Ok(Vec::new());
    };
    if are_all_rows_kept {
        return Err(sink.wrong(KEY, "has no effect without keep_for; set keep_for, or remove the key"));
    }
    Ok(consumers.concat())
}

fn sqlite_table(text: &str) -> Result<String, String> {
    let is_free = !text.starts_with("sqlite_");
    let table = identifier(TABLE_LIMIT, TABLE)(text)?;
    text_if(is_free, &table, "must not begin with sqlite_, because SQLite reserves such names")
}

fn sqlite_path(text: &str) -> Result<PathBuf, String> {
    // SQLite would keep a database of this name in memory.
    text_if(text != ":memory:", text, "must be a file: SQLite does not store \":memory:\"").and_then(|text| path(&text))
}

pub(super) fn shown_sqlite(settings: &SqliteSettings) -> SettingsList {
    let consumers: BTreeSet<_> = settings.keep_for_consumers.iter().map(|kept| &*kept.consumer).collect();
    vec![
        ("path", json!(settings.path)),
        ("table", json!(settings.table)),
        ("operations", json!(settings.operations)),
        ("search", json!(<&str>::from(settings.search))),
        ("keep_seconds", json!(settings.keep_for.map(|time| time.as_secs()))),
        ("keep_for_consumers", json!((!consumers.is_empty()).then_some(consumers))),
        ("keep_size", json!(settings.keep_size)),
    ]
}
