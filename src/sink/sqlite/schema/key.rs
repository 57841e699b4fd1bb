//! The unique index that identifies an event, and how the key of older versions is replaced.
//!
//! Older versions created the table with `unique (channel_id, event_offset)`. If two events had one offset, the second was
//! not written. SQLite cannot drop a constraint of a table, and a copy of the table could fill the disk. Therefore the
//! constraint is turned into an ordinary index by editing the schema, as SQLite's documentation of `alter table` describes.
//! The index is then dropped. No row changes, and the table always has a unique index.

use rusqlite::{Connection, Transaction};
use tracing::info;

use crate::SinkError;
use crate::settings::SqliteSettings;
use crate::sqlite::error::SqliteError;
use crate::table::{NO_ID, identity_index, quoted};

/// The constraint of older versions, as it is written in the table's SQL.
const CONSTRAINT: &str = ",\n    unique (channel_id, event_offset)";

const OLD: [&str; 2] = ["channel_id", "event_offset"];

/// The expressions of the unique index.
pub(in crate::sqlite) fn columns() -> String {
    format!("channel_id, event_offset, {}", identity("event_id"))
}

/// An event's id in a comparison. A null is replaced, because it would be distinct from every other null.
pub(in crate::sqlite) fn identity(id: &str) -> String {
    format!("coalesce({id}, '{NO_ID}')")
}

pub(in crate::sqlite) fn create(table: &str) -> String {
    let (name, columns) = (quoted(&identity_index(table)), columns());
    format!("create unique index if not exists {name} on {} ({columns});\n", quoted(table))
}

/// A unique index of an older version, in which the offset alone identifies an event of a channel.
#[derive(Debug)]
pub(in crate::sqlite) struct OldKey {
    name: String,
    /// `c` if `create index` created the index, `u` if a constraint of the table did.
    origin: String,
}

pub(in crate::sqlite) fn old(connection: &Connection, table: &str) -> rusqlite::Result<Vec<OldKey>> {
    // If a part of an index is an expression, its name is null.
    let mut indexes = connection.prepare(&format!(
        "select name, origin from pragma_index_list(?1) as list where \"unique\" and not partial and '{}' = \
         (select group_concat(part) from \
         (select ifnull(name, '') as part from pragma_index_info(list.name) order by part))",
        OLD.join(",")
    ))?;
    indexes.query_map([table], |row| Ok(OldKey { name: row.get(0)?, origin: row.get(1)? }))?.collect()
}

/// Creates the key of an existing table, and drops the keys of older versions.
pub(in crate::sqlite) fn replace(transaction: &Transaction<'_>, settings: &SqliteSettings) -> Result<(), SqliteError> {
    let table = &settings.table;
    transaction.execute_batch(&create(table))?;
    for key in old(transaction, table)? {
        let name = if key.origin == "c" { key.name } else { into_index(transaction, table, &key.name)? };
        transaction.execute_batch(&format!("drop index {}", quoted(&name)))?;
        info!(table, "the key of the table was replaced: two events at one offset are both stored from now on");
    }
    Ok(())
}

/// Turns the constraint into an ordinary index, and returns its name. Fails if another program has created the table or
/// changed its definition.
fn into_index(transaction: &Transaction<'_>, table: &str, automatic: &str) -> Result<String, SqliteError> {
    let named = format!("{table}_old_key");
    let index = format!("CREATE UNIQUE INDEX {} ON {} ({})", quoted(&named), quoted(table), OLD.join(", "));
    let sql = "select sql from sqlite_schema where type = 'table' and name = ?1";
    let made: String = transaction.query_row(sql, [table], |row| row.get(0))?;
    let Some((before, after)) = made.split_once(CONSTRAINT) else {
        return Err(SqliteError::Other(SinkError::unusable(format!(
            "table {table} is unique over (channel_id, event_offset), so that of two events at one offset the second would be \
             lost; channeld cannot remove this key, because another program changed the definition of the table: create \
             the table again without this key"
        ))));
    };
    let version: i64 = transaction.query_row("pragma schema_version", [], |row| row.get(0))?;
    transaction.execute_batch("pragma writable_schema = on")?;
    let changed = transaction
        .execute(
            "update sqlite_schema set sql = ?2 where type = 'table' and name = ?1",
            [table, &format!("{before}{after}")],
        )
        .and_then(|_| {
            transaction.execute(
                "update sqlite_schema set name = ?2, sql = ?3 where type = 'index' and name = ?1",
                [automatic, &named, &index],
            )
        });
    // `reset` makes this connection read the schema again. Other connections read it again because of the new version.
    transaction.execute_batch(&format!("pragma schema_version = {}; pragma writable_schema = reset", version + 1))?;
    changed?;
    Ok(named)
}
