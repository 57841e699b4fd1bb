//! Reads the keys of a PostgreSQL sink, and formats its settings.

use serde_json::{Value, json};

use crate::config::database::{check_url, identifier, read_server};
use crate::config::section::{Reported, Section, all};
use crate::config::values::word;
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

pub(super) fn line(settings: &PostgresSettings) -> String {
    let PostgresSettings { server, schema, table, create, search, notify } = settings;
    let parts = [
        Some(format!("{}, table {schema}.{table}", server.place())),
        (!create).then(|| "which is not made".to_owned()),
        shown_search(*search),
        notify.as_ref().map(|notify| format!("notifies {notify}")),
        server.identity.as_ref().map(|_| "with a client certificate".to_owned()),
        server.authorities.as_ref().map(|_| "trusting ca_file alone".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

pub(super) fn shown_search(search: Search) -> Option<String> {
    (search != Search::None).then(|| format!("search by {}", <&str>::from(search)))
}

pub(super) fn json(settings: &PostgresSettings) -> Value {
    json!({
        "database": settings.server.place(),
        "schema": settings.schema,
        "table": settings.table,
        "create": settings.create,
        "search": <&str>::from(settings.search),
        "notify": settings.notify,
        "client_certificate": settings.server.identity.is_some(),
        "ca_file": settings.server.authorities.is_some(),
    })
}
