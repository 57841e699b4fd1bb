//! Reads and describes the settings of a PostgreSQL sink.

use serde_json::json;

use crate::config::reading::values::word;
use crate::config::reading::{Reported, Section, all};
use crate::config::shown::Shown;
use crate::config::tables::database::{check_url, identifier, read_server};
use ::sink::{PostgresSettings, Search};

/// The default name of the table.
pub(super) const TABLE: &str = "events";

/// The longest table name. Other names are derived from it, and PostgreSQL limits names to 63 bytes.
pub(super) const TABLE_LIMIT: usize = 48;

/// The longest identifier in PostgreSQL.
const NAME_LIMIT: usize = 63;

pub(super) fn read(sink: &Section<'_>) -> Result<PostgresSettings, Reported> {
    let server = read_server(sink);
    all!(PostgresSettings {
        server: server.and_then(|server| check_url(sink, &server).map(|()| server)),
        schema: sink.or("schema", identifier(NAME_LIMIT, "public"), "public"),
        table: sink.or("table", identifier(TABLE_LIMIT, TABLE), TABLE),
        create: sink.boolean("create", true),
        search: sink.or("search", word, Search::None.into()),
        notify: sink.optional("notify", notify).map(Option::flatten),
    })
}

/// Returns `None` for an empty text.
fn notify(text: &str) -> Result<Option<String>, String> {
    match text.trim() {
        "" => Ok(None),
        name => identifier(NAME_LIMIT, "channeld_events")(name).map(Some),
    }
}

pub(super) fn shown(settings: &PostgresSettings) -> Shown {
    vec![
        ("database", json!(settings.server.place())),
        ("schema", json!(settings.schema)),
        ("table", json!(settings.table)),
        ("create", json!(settings.create)),
        ("search", json!(<&str>::from(settings.search))),
        ("notify", json!(settings.notify)),
        ("client_certificate", json!(settings.server.identity.is_some())),
        ("ca_file", json!(settings.server.authorities.is_some())),
    ]
}
