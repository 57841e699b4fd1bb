//! The state of the tables in the database, and the SQL that adds what they lack.

use serde::Deserialize;
use tokio_postgres::Client;

use super::cells::parameters;
use super::ends;
use super::statements::{identity, key};
use crate::settings::{PostgresSettings, Search};
use crate::table::{
    COLUMNS, CellKind, Column, POSITION, identity_index, joined, lacking, operations, position_index, quoted, searched,
};
use net::postgres::{DatabaseError, EarlyAck, advice_on_standby, answered};

/// The column for the full-text search.
const SEARCH: &str = "search";

/// The maximum number of letters of an event that are searched. A `tsvector` has at most 1,048,575 bytes, and a letter
/// takes at most eight bytes. A letter has up to four bytes, and a letter of a hyphenated word is stored twice: in the
/// whole word and in the part between hyphens.
const SEARCHED: usize = 130_000;

/// The state of the database, as `look.sql` returns it.
#[expect(clippy::struct_excessive_bools, reason = "each is a column of an answer")]
#[derive(Deserialize)]
pub(super) struct DatabaseProperties {
    version: String,
    is_read_only: bool,
    encoding: String,
    #[serde(flatten)]
    early: EarlyAck,
    /// Quoted for SQL.
    role: String,
    has_lz4: bool,
    has_schema: bool,
    may_use: bool,
    may_create: bool,
    may_alter: bool,
    /// A description of each relation that has the name of one of the tables, and is not a table.
    not_tables: Vec<String>,
    /// The tables that a crash of the server empties.
    unlogged: Vec<String>,
    /// Empty if the table does not exist.
    columns: Vec<String>,
    has_key: bool,
    /// The SQL that drops the keys of older versions, in which the offset alone identified an event.
    old_keys: Vec<String>,
    /// Whether the index over the positions exists.
    has_position_index: bool,
    /// Whether the index over the ends of addresses, hashes and ids exists.
    has_ends: bool,
    is_partitioned: bool,
    /// Empty if the table of lanes does not exist.
    progress_columns: Vec<String>,
    /// False if the sink has no table of consumers.
    has_consumers: bool,
    /// Empty if the table of operations does not exist, or the sink has none.
    operation_columns: Vec<String>,
    may_write: bool,
    /// The schema of the extension for trigrams, quoted for SQL. `None` if the database does not have the extension.
    trigrams: Option<String>,
}

/// The SQL that adds what the tables lack. Running this SQL twice does no harm.
#[derive(Debug)]
pub(super) struct SchemaChanges {
    pub(super) made: String,
    /// Creates the indexes over the positions and the ends of an existing table. This is a transaction of its own, because `made`
    /// locks the table for readers.
    pub(super) indexed: String,
    /// Drops the keys that `made` replaces.
    pub(super) dropped: String,
}

impl SchemaChanges {
    pub(super) fn all(&self) -> String {
        let parts = [&self.made, &self.indexed, &self.dropped].map(String::as_str);
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

impl DatabaseProperties {
    pub(super) async fn look(client: &Client, settings: &PostgresSettings) -> Result<Self, DatabaseError> {
        let (table, progress) = (settings.quoted(), settings.progress());
        let (operations, consumers) = (settings.operations(), settings.consumers());
        let (id, ends) = (identity("event_id"), ends::index(&settings.table));
        let names = parameters![
            settings.schema => TEXT, table => TEXT, progress => TEXT, id => TEXT, operations => TEXT,
            consumers => TEXT, ends => TEXT
        ];
        let rows = answered(client.query_typed(include_str!("table/look.sql"), &names)).await?;
        let row = rows.first().expect("a query without a table gives one row");
        Ok(serde_json::from_str(row.get(0)).expect("the query names its columns like the fields"))
    }

    /// The SQL that adds what the tables lack. Fails if this SQL must not be run, or would not help. The message says why, and
    /// how to fix the problem.
    pub(super) fn missing(&self, settings: &PostgresSettings, at: &str) -> Result<SchemaChanges, String> {
        if self.is_read_only {
            return Err(format!(
                "it accepts no writes, for example because it is a standby: {}",
                advice_on_standby(at)
            ));
        }
        let (role, schema) = (&self.role, &settings.schema);
        if !self.may_use {
            return Err(format!(
                "role {role} may not use schema {schema}: as its owner run: grant usage on schema {} to {role};",
                quoted(schema)
            ));
        }
        if let Some(found) = self.not_tables.first() {
            return Err(format!("{found}, not a table: choose another name in {at}.table, or rename that object"));
        }
        let missing = SchemaChanges {
            made: self.statements(settings),
            indexed: self.indexed(settings),
            dropped: self.old_keys.join(" "),
        };
        let (table, sql) = (settings.quoted(), missing.all());
        if let Some((table, name)) = self.foreign(settings) {
            return Err(format!(
                "table {table} has no column {name}: it does not belong to channeld, or was changed; choose another name in {at}.table, or \
                 rename that table"
            ));
        }
        let grants = self.grants(settings);
        if !sql.is_empty() && !settings.create {
            return Err(format!(
                "table {table} is missing or incomplete, and {at}.create is false: run: {sql} {grants}"
            ));
        }
        let is_created = self.columns.is_empty()
            || settings.operations && self.operation_columns.is_empty()
            || settings.feed && !self.has_consumers;
        if !sql.is_empty() && !self.may_create && is_created {
            return Err(format!(
                "role {role} may not create tables in schema {schema}: as its owner run: {sql} {grants}"
            ));
        }
        if !self.may_alter && self.alters(settings) {
            return Err(format!(
                "role {role} may not change table {table}, which belongs to another role: as its owner run: {sql} {grants}"
            ));
        }
        if !self.may_write && !self.columns.is_empty() {
            return Err(format!("role {role} may not write to table {table}: as its owner run: {grants}"));
        }
        Ok(missing)
    }

    /// A table that belongs to another program, and a column that it does not have.
    fn foreign(&self, settings: &PostgresSettings) -> Option<(String, &'static str)> {
        let needed = lacking(&self.columns).find(|column| column.is_needed && !self.columns.is_empty());
        if let Some(Column { name, .. }) = needed {
            return Some((settings.quoted(), name));
        }
        let table = settings.operations().filter(|_| !self.operation_columns.is_empty())?;
        operations::lacking(&self.operation_columns).map(|name| (table, name))
    }

    /// Whether existing tables have to be changed.
    fn alters(&self, settings: &PostgresSettings) -> bool {
        let lanes = &self.progress_columns;
        let is_older = !self.lacking(settings).is_empty() || !self.indexed(settings).is_empty();
        !lanes.is_empty() && !lanes.iter().any(|name| name == POSITION)
            || !self.columns.is_empty() && (is_older || !self.old_keys.is_empty())
    }

    fn statements(&self, settings: &PostgresSettings) -> String {
        let mut statements = Vec::new();
        if !self.has_schema {
            statements.push(format!("create schema if not exists {};", quoted(&settings.schema)));
        }
        if settings.search == Search::Trigrams && self.trigrams.is_none() {
            statements.push("create extension if not exists pg_trgm;".to_owned());
        }
        if self.columns.is_empty() {
            statements.push(self.create(settings));
            // The positions refer to rows that no longer exist.
            let lanes = (!self.progress_columns.is_empty()).then(|| settings.progress());
            let cursors = settings.consumers().filter(|_| self.has_consumers);
            statements.extend(lanes.into_iter().chain(cursors).map(|table| format!("delete from {table};")));
        } else {
            statements.extend(self.lacking(settings));
        }
        if self.progress_columns.is_empty() {
            // Every delivery changes a row of this table. The fill factor leaves space for the next version of the row in
            // the same page.
            statements.push(format!(
                "create table if not exists {} (channel_id uuid, sink text, through bigint, epoch bigint not null, \
                 {POSITION} bigint not null default 0, primary key (channel_id, sink)) with (fillfactor = 20);",
                settings.progress()
            ));
        } else if !self.progress_columns.iter().any(|name| name == POSITION) {
            // An older version, which may still be running, inserts rows without this column.
            let progress = settings.progress();
            statements
                .push(format!("alter table {progress} add column if not exists {POSITION} bigint not null default 0;"));
        }
        if let Some(table) = settings.operations().filter(|_| self.operation_columns.is_empty()) {
            let columns = operations::definitions(CellKind::postgres);
            statements.push(format!("create table if not exists {table} ({columns}) with (fillfactor = 50);"));
        }
        if let Some(table) = settings.consumers().filter(|_| !self.has_consumers) {
            statements.push(format!(
                "create table if not exists {table} (consumer text, channel_id uuid, through bigint not null, lease text, \
                 leased_until timestamptz, leased_through bigint, primary key (consumer, channel_id)) \
                 with (fillfactor = 50);"
            ));
        }
        statements.join(" ")
    }

    fn create(&self, settings: &PostgresSettings) -> String {
        let (table, name) = (settings.quoted(), &settings.table);
        let columns = COLUMNS.iter().map(|column| self.defined(column)).chain([position_column()]);
        let columns = columns.chain(generated(settings.search));
        let columns = joined(columns, ", ");
        let mut created = format!(
            "create table if not exists {table} ({columns}); {} {} \
             create index if not exists \"{name}_time\" on {table} using brin (\"time\") with (pages_per_range = 32, autosummarize = on); \
             create index if not exists \"{name}_event_id\" on {table} (event_id); \
             create index if not exists \"{name}_operation_id\" on {table} (operation_id) where operation_id is not null;",
            create_key(settings),
            self.create_position_index(settings),
        );
        created.extend(self.index(settings));
        created.extend((settings.search == Search::Words).then(|| ends::create(settings)));
        created
    }

    /// The SQL that adds missing columns, their indexes and the key.
    fn lacking(&self, settings: &PostgresSettings) -> Vec<String> {
        let table = settings.quoted();
        let add = |column: String| format!("alter table {table} add column if not exists {column};");
        let mut lacking: Vec<_> = lacking(&self.columns).map(|column| add(self.defined(column))).collect();
        if !self.columns.iter().any(|name| name == POSITION) {
            lacking.push(add(position_column()));
        }
        if !self.has_key {
            // An index with this name is then unfinished: the concurrent creation of an index can fail.
            let unfinished = settings.qualified(&identity_index(&settings.table));
            lacking.push(format!("drop index if exists {unfinished}; {}", create_key(settings)));
        }
        if !self.columns.iter().any(|name| name == SEARCH) {
            lacking.extend(generated(settings.search).map(add));
            lacking.extend(self.index(settings));
        }
        lacking
    }

    /// The SQL that creates the indexes over the positions and the ends of an existing table.
    fn indexed(&self, settings: &PostgresSettings) -> String {
        if self.columns.is_empty() {
            return String::new();
        }
        let mut indexed = Vec::new();
        // As for the key, indexes with these names are unfinished.
        let unfinished = |name: String| format!("drop index if exists {};", settings.qualified(&name));
        if !self.has_position_index {
            let create = self.create_position_index(settings);
            indexed.push(format!("{} {create}", unfinished(position_index(&settings.table))));
        }
        if !self.has_ends && settings.search == Search::Words {
            indexed.push(format!(" {}{}", unfinished(ends::index(&settings.table)), ends::create(settings)));
        }
        indexed.concat()
    }

    fn create_position_index(&self, settings: &PostgresSettings) -> String {
        let (table, name) = (settings.quoted(), quoted(&position_index(&settings.table)));
        // A unique index of a partitioned table must have the columns that determine the partition.
        let unique = if self.is_partitioned { "" } else { "unique " };
        format!("create {unique}index if not exists {name} on {table} (channel_id, {POSITION});")
    }

    fn defined(&self, column: &Column) -> String {
        let (name, kind) = (quoted(column.name), column.kind.postgres());
        // lz4 is several times as fast as the server's default compression, and the result is about as small.
        let is_long = matches!(column.name, "record" | "decoded" | "proof");
        let compression = if is_long && self.has_lz4 { " compression lz4" } else { "" };
        format!("{name} {kind}{compression}{}", if column.is_needed { " not null" } else { "" })
    }

    fn grants(&self, settings: &PostgresSettings) -> String {
        let (role, schema) = (&self.role, quoted(&settings.schema));
        let table = settings.quoted();
        let updated = [Some(settings.progress()), settings.operations(), settings.consumers()].into_iter().flatten();
        let updated = joined(updated, ", ");
        format!(
            "grant usage on schema {schema} to {role}; grant select, insert, update ({POSITION}) on {table} to {role}; \
             grant select, insert, update on {updated} to {role};"
        )
    }

    /// Describes the state for an operator. `missing` is the SQL that the daemon will run when it starts.
    pub(super) fn said(&self, settings: &PostgresSettings, missing: &str) -> String {
        let mut table = format!("{}.{}", settings.schema, settings.table);
        if settings.operations {
            table = format!("{table} (with {}.{})", settings.schema, operations::table(&settings.table));
        }
        let state = match (missing.is_empty(), self.columns.is_empty()) {
            (true, _) => "is there".to_owned(),
            (false, true) => "will be created".to_owned(),
            (false, false) => format!("is there, and this SQL will be run: {missing}"),
        };
        let mut said = format!("PostgreSQL {}; table {table} {state}", self.version);
        if self.encoding != "UTF8" {
            let advice = "an event with a character that this encoding lacks is refused";
            said = format!("{said}; CAREFUL: the database's encoding is {}: {advice}", self.encoding);
        }
        for early_ack in self.early_acks() {
            said = format!(
                "{said}; CAREFUL: if the server crashes, it may forget events that count as delivered, because {early_ack}"
            );
        }
        said
    }

    /// Why the server acknowledges events before they are on its disk, with the remedy for each reason.
    pub(super) fn early_acks(&self) -> Vec<String> {
        let unlogged = |table| format!("table {table} is unlogged: run: alter table {table} set logged;");
        self.early.reasons("this role").into_iter().chain(self.unlogged.iter().map(unlogged)).collect()
    }

    fn index(&self, settings: &PostgresSettings) -> Option<String> {
        let class = match (settings.search, &self.trigrams) {
            (Search::None, _) => return None,
            (Search::Words, _) => String::new(),
            // A new extension is created in the search path.
            (Search::Trigrams, None) => " gin_trgm_ops".to_owned(),
            (Search::Trigrams, Some(schema)) => format!(" {schema}.gin_trgm_ops"),
        };
        let (table, name) = (settings.quoted(), &settings.table);
        Some(format!(" create index if not exists \"{name}_search\" on {table} using gin ({SEARCH}{class});"))
    }
}

fn position_column() -> String {
    format!("{POSITION} {}", CellKind::Number.postgres())
}

fn create_key(settings: &PostgresSettings) -> String {
    let (table, name) = (settings.quoted(), quoted(&identity_index(&settings.table)));
    format!("create unique index if not exists {name} on {table} ({});", key())
}

/// The column for the full-text search, which the server generates from other columns.
fn generated(search: Search) -> Option<String> {
    let text = searched(|column| {
        let name = quoted(column.name);
        match column.kind {
            CellKind::Text => format!("coalesce({name}, '')"),
            CellKind::Hash => format!("coalesce('0x' || encode({name}, 'hex'), '')"),
            CellKind::Id | CellKind::Number | CellKind::Time | CellKind::Json => format!("coalesce({name}::text, '')"),
        }
    });
    let (kind, value) = match search {
        Search::None => return None,
        Search::Words => ("tsvector", format!("to_tsvector('simple', left({text}, {SEARCHED}))")),
        Search::Trigrams => ("text", format!("left({text}, {SEARCHED})")),
    };
    Some(format!("{SEARCH} {kind} generated always as ({value}) stored"))
}
