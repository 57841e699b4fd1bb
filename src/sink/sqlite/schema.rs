//! The tables, and the statements over them.

use rusqlite::{Connection, Transaction};

use super::SqliteSettings;
use super::error::SqliteError;
use crate::MAX_HELD;
use crate::SinkError;
use crate::table::{self, COLUMNS, CellKind, POSITION, consumers, joined, names, operations, probe, progress, quoted};

pub(super) mod key;
pub(super) mod positions;
mod search;

use positions::PositionStatements;
use search::TextIndex;

/// Settings of a new database. They have no effect on an existing database. With `auto_vacuum = incremental`, free pages
/// can be returned to the file system.
pub(super) const BEFORE_THE_LOG: &str = "pragma page_size = 16384; pragma auto_vacuum = incremental;";

/// Settings of a connection: a cache of 8 MiB, and a log that is truncated to 64 MiB after a long-running reader has made it
/// longer. The log is written into the main file when it has 2,000 pages, which are 32 MiB. The index over the event ids changes
/// its pages in random order, and each page is then written once for several transactions.
pub(super) const AFTER_THE_LOG: &str = "pragma synchronous = full; pragma cache_size = -8192; \
     pragma wal_autocheckpoint = 2000; pragma journal_size_limit = 67108864;";

#[derive(Clone, Debug)]
pub(super) struct Statements {
    pub(super) progress_table: String,
    /// The lane's position and epoch.
    pub(super) position: String,
    /// Takes the lane over and sets its position, even if the new position is lower. Both this statement and the next one record
    /// the newest position of the rows, in case the lane's row was removed or is older than the rows.
    pub(super) adopt: String,
    /// Takes the lane over and changes nothing else.
    pub(super) claim: String,
    /// Moves the lane's position forward, if it is the expected position.
    pub(super) advance: String,
    /// Inserts a row. The last parameter is its position.
    pub(super) insert: String,
    pub(super) positions: PositionStatements,
    /// Merges an operation into the table of operations.
    pub(super) merge: Option<String>,
    /// Copies a row of channel `?1`, with the values of [`probe::changed`] from `?2` on. Only for a transaction that is rolled
    /// back.
    pub(super) copy: String,
    /// Whether an event has a row.
    pub(super) look: String,
    /// The events of channel `?1` above the offset `?2`, up to `?3`, in the order of writing. Limited to [`MAX_HELD`].
    pub(super) between: String,
    /// Each adds the row `?1` to a full-text index.
    pub(super) index: Vec<String>,
    pub(super) oldest: String,
    /// The position up to which the consumer `?1` has processed the channel `?2`.
    pub(super) cursor: String,
    /// Deletes the rows whose ids are at most `?1`, and the operations that last changed before the row `?1` was written and
    /// have no later row.
    pub(super) delete: Vec<String>,
}

impl Statements {
    pub(super) fn of(settings: &SqliteSettings) -> Self {
        let (table, progress_table) = (quoted(&settings.table), progress(&settings.table));
        let progress = quoted(&progress_table);
        let values = |count| joined((1..=count).map(|number| format!("?{number}")), ", ");
        let (names, merged) = (names(), quoted(&operations::table(&settings.table)));
        let indexes = TextIndex::all(settings);
        let mut delete: Vec<_> = indexes.iter().map(|index| index.remove(&settings.table)).collect();
        delete.push(format!("delete from {table} where id <= ?1"));
        if settings.operations {
            let time = format!("select delivered from {table} where id = ?1");
            // A row that remains can have a lower step than its operation. If it were replayed after the operation was deleted, the
            // operation would return with this lower step.
            let rows = format!("select 1 from {table} as e where e.id > ?1 and e.channel_id = {merged}.channel_id");
            let rows = format!("{rows} and e.operation_id = {merged}.operation_id");
            delete.insert(0, format!("delete from {merged} where delivered < ({time}) and not exists ({rows})"));
        }
        let key = key::columns();
        let lane = "channel_id = ?1 and sink = ?2";
        let newest_row = format!("ifnull((select max(e.{POSITION}) from {table} as e where e.channel_id = ?1), 0)");
        Self {
            position: format!("select through, epoch from {progress} where {lane}"),
            adopt: format!(
                "insert into {progress} (channel_id, sink, through, epoch, {POSITION}) values (?1, ?2, ?3, ?4, {newest_row}) \
                 on conflict (channel_id, sink) do update set through = excluded.through, epoch = excluded.epoch, \
                 {POSITION} = max({POSITION}, excluded.{POSITION})"
            ),
            claim: format!("update {progress} set epoch = ?3, {POSITION} = max({POSITION}, {newest_row}) where {lane}"),
            // A lease that is not shared has epoch 0 and is always valid.
            advance: format!(
                "update {progress} set through = max(ifnull(through, ?3), ?3), epoch = ?4 \
                 where {lane} and (epoch <= ?4 or ?4 = 0) and through is ?5"
            ),
            progress_table,
            insert: format!(
                "insert into {table} ({names}, {POSITION}) values ({}) on conflict ({key}) do nothing",
                values(COLUMNS.len() + 1)
            ),
            positions: PositionStatements::of(settings),
            merge: settings
                .operations
                .then(|| operations::upsert(&merged, &format!("values ({})", values(operations::COLUMNS.len())))),
            copy: format!(
                "insert into {table} ({names}) select {} from {table} where channel_id = ?1 \
                 order by event_offset desc limit 1",
                probe::copied_columns(|at| format!("?{}", at + 2))
            ),
            look: format!(
                "select 1 from {table} where channel_id = ?1 and event_offset = ?2 and {} = {}",
                key::identity("event_id"),
                key::identity("?3")
            ),
            // The plus sign prevents a search of the whole table in the order of writing.
            between: format!(
                "select event_offset, event_id from {table} where channel_id = ?1 and event_offset > ?2 and event_offset <= ?3 \
                 order by +id limit {MAX_HELD}"
            ),
            index: indexes.iter().map(|index| index.add(&settings.table)).collect(),
            oldest: format!(
                "select id, delivered, octet_length(record), channel_id, channel, {POSITION} from {table} order by id limit ?1"
            ),
            cursor: format!(
                "select through from {} where consumer = ?1 and channel_id = ?2",
                quoted(&consumers(&settings.table))
            ),
            delete,
        }
    }
}

/// The SQL that creates the table and its indexes.
fn create(table: &str) -> String {
    let column =
        |name: &str, kind: &str, is_needed| format!("{name} {kind}{}", if is_needed { " not null" } else { "" });
    let columns = COLUMNS.iter().map(|each| column(each.name, each.kind.sqlite(), each.is_needed));
    let columns = joined(columns, ",\n    ");
    format!(
        "create table \"{table}\" (\n    id integer primary key,\n    {columns},\n    {POSITION} integer\n);\n{}\
         create index \"{table}_time\" on \"{table}\" (time);\n\
         create index \"{table}_event_id\" on \"{table}\" (event_id);\n\
         create index \"{table}_operation_id\" on \"{table}\" (operation_id) where operation_id is not null;\n",
        key::create(table)
    )
}

/// The names of a table's columns. Empty if the table does not exist.
pub(super) fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("select name from pragma_table_info(?1)")?;
    statement.query_map([table], |row| row.get(0))?.collect()
}

/// The SQL that adds the columns that a table lacks. Fails if the table belongs to another program.
pub(super) fn lacking(found: &[String], settings: &SqliteSettings) -> Result<Vec<String>, SinkError> {
    let table = &settings.table;
    if let Some(column) = table::lacking(found).find(|column| column.is_needed) {
        return Err(foreign(table, column.name, settings));
    }
    let add = |name, kind| format!("alter table \"{table}\" add column {name} {kind};");
    let mut lacking: Vec<_> = table::lacking(found).map(|column| add(column.name, column.kind.sqlite())).collect();
    if !found.iter().any(|name| name == POSITION) {
        lacking.push(add(POSITION, CellKind::Number.sqlite()));
    }
    Ok(lacking)
}

/// The error for a table that belongs to another program.
fn foreign(table: &str, column: &str, settings: &SqliteSettings) -> SinkError {
    SinkError::unusable(format!(
        "table {table} of {} has no column {column}: it does not belong to channeld, or was changed; choose another table name, or rename that table",
        settings.path.display()
    ))
}

/// Creates missing tables, columns and indexes. A new full-text index gets the existing rows only if `fills_index` is true,
/// because this can take long.
pub(super) fn complete(
    transaction: &Transaction<'_>,
    settings: &SqliteSettings,
    fills_index: bool,
) -> Result<(), SqliteError> {
    let (table, progress) = (&settings.table, quoted(&progress(&settings.table)));
    let found = columns(transaction, table)?;
    let missing = if found.is_empty() { create(table) } else { lacking(&found, settings)?.concat() };
    transaction.execute_batch(&missing)?;
    transaction.execute_batch(&format!(
        "create table if not exists {progress} (\n    channel_id text not null,\n    sink text not null,\n    \
         through integer,\n    epoch integer not null,\n    {POSITION} integer not null default 0,\n    \
         primary key (channel_id, sink)\n) without rowid;\n"
    ))?;
    positions::prepare(transaction, settings)?;
    if settings.operations {
        let name = operations::table(table);
        let found = columns(transaction, &name)?;
        match operations::lacking(&found) {
            None => {}
            Some(_) if found.is_empty() => transaction.execute_batch(&format!(
                "create table {table} ({columns}) without rowid;\n\
                 create index {index} on {table} (delivered);\n",
                table = quoted(&name),
                columns = operations::definitions(CellKind::sqlite),
                index = quoted(&format!("{name}_delivered"))
            ))?,
            Some(column) => return Err(foreign(&name, column, settings).into()),
        }
    }
    if found.is_empty() {
        // The positions refer to rows that no longer exist.
        transaction.execute_batch(&format!("delete from {progress}"))?;
        let consumers = consumers(table);
        if !columns(transaction, &consumers)?.is_empty() {
            transaction.execute_batch(&format!("delete from {}", quoted(&consumers)))?;
        }
    } else {
        key::replace(transaction, settings)?;
    }
    Ok(search::prepare(transaction, settings, fills_index)?)
}
