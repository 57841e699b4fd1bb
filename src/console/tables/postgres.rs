//! Reads a table in a PostgreSQL database.
//!
//! # Cancellation
//!
//! If the time of a query is over, the server is asked to cancel it, and its connection is closed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::timeout_at;
use tokio_postgres::types::{ToSql, Type};

use super::backend::{Backend, FOLLOWING, Hits, Look, MOST_NEW, Unread};
use super::filter::Filter;
use super::piece::{LOOKED_THROUGH, piece};
use super::rows::{Row, Whole};
use super::sample::Sample;
use super::sql::{Dialect, LISTED, NEWEST_FIRST, Statement, Value, pattern, texts};
use net::postgres::{Connector, DatabaseError, Open, advised, answered};
use net::tasks::lock;
use proof::event::ChannelId;
use sink::{PostgresSettings, Search};

/// The largest number of idle connections.
const IDLE: usize = 2;

/// The time limit of queries that do not use the budget of a page.
const SMALL: Duration = Duration::from_secs(8);

/// The highest number of hits that is counted. A search with fewer hits finds its rows by their words alone.
const FEW: usize = 1_000;

/// How many channels are searched for their newest rows.
const MOST_CHANNELS: usize = 200;

/// How many of the newest rows of each channel are searched for new rows.
const LOOKED_AT: usize = 200;

pub(super) struct Postgres {
    at: String,
    settings: PostgresSettings,
    connector: Connector,
    idle: Mutex<Vec<Open>>,
}

impl Postgres {
    pub(super) fn new(sink: &str, settings: PostgresSettings) -> Result<Self, String> {
        let at = format!("sinks.{sink}");
        let connector = Connector::new(&settings.server);
        let connector = connector.map_err(|error| format!("{at}.url: no certificate can be checked: {error}"))?;
        Ok(Self { at, settings, connector, idle: Mutex::default() })
    }

    async fn query(&self, deadline: Instant, sql: &str, values: &[Value]) -> Result<Vec<tokio_postgres::Row>, Unread> {
        let open = self.open().await?;
        let parameters: Vec<(&(dyn ToSql + Sync), Type)> = values
            .iter()
            .map(|value| match value {
                Value::Text(text) => (text as &(dyn ToSql + Sync), Type::TEXT),
                Value::Texts(texts) => (texts as _, Type::TEXT_ARRAY),
                Value::Number(number) => (number as _, Type::INT8),
            })
            .collect();
        let answer = timeout_at(deadline.into(), open.client.query_typed(sql, &parameters)).await;
        match answer {
            Ok(Ok(rows)) => {
                let mut idle = lock(&self.idle);
                if idle.len() < IDLE {
                    idle.push(open);
                }
                Ok(rows)
            }
            Ok(Err(error)) => Err(self.unread(&error.into())),
            Err(_) => {
                self.connector.cancel(&open).await;
                Err(Unread::Slow)
            }
        }
    }

    async fn open(&self) -> Result<Open, Unread> {
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|open| !open.client.is_closed());
            idle.pop()
        };
        if let Some(open) = idle {
            return Ok(open);
        }
        let open = self.connector.connect().await.map_err(|error| self.unread(&error))?;
        let only_reads = "set default_transaction_read_only = on; set timezone = 'UTC'; set jit = off";
        answered(open.client.batch_execute(only_reads)).await.map_err(|error| self.unread(&error))?;
        Ok(open)
    }

    fn unread(&self, error: &DatabaseError) -> Unread {
        if let DatabaseError::Server(source) = error
            && let Some(said) = source.as_db_error()
            && said.code() == &tokio_postgres::error::SqlState::UNDEFINED_TABLE
        {
            let table = self.table();
            return Unread::Failed(format!("Table {table} does not exist yet: no event was delivered to it."));
        }
        Unread::Failed(format!("{}.", advised(error, &self.settings.server, &self.at)))
    }

    fn table(&self) -> String {
        format!("\"{}\".\"{}\"", self.settings.schema, self.settings.table)
    }

    fn with_words(&self, statement: &mut Statement, filter: &Filter) {
        let Some(words) = &filter.words else { return };
        match self.settings.search {
            Search::None => statement.looked_through(words),
            Search::Words => {
                let text = statement.parameter(Value::Text(words.join(" ")));
                let query = format!("plainto_tsquery('simple', {text})::text");
                // The last word can be the beginning of a longer word.
                statement
                    .conditions
                    .push(format!("search @@ (case when {query} = '' then '' else {query} || ':*' end)::tsquery"));
            }
            Search::Trigrams => {
                for word in words {
                    let pattern = statement.parameter(Value::Text(pattern(word)));
                    statement.conditions.push(format!("search ilike {pattern} escape '\\'"));
                }
            }
        }
    }

    /// Builds a query for the newest rows of each channel, read from the channel's end of the key. `what` is the select
    /// list.
    fn newest(&self, what: &str, each: usize) -> String {
        let table = self.table();
        format!(
            "with recursive ids as (\
               (select channel_id from {table} order by channel_id limit 1) union all \
               select (select channel_id from {table} where channel_id > ids.channel_id order by channel_id limit 1) \
               from ids where ids.channel_id is not null), \
             newest as (select e.* from (select channel_id from ids where channel_id is not null limit {MOST_CHANNELS}) as c \
               cross join lateral (select * from {table} where channel_id = c.channel_id \
                 order by event_offset desc limit {each}) as e) \
             select {what} from newest"
        )
    }

    /// Counts the rows that contain the words, up to [`FEW`].
    async fn counted(&self, filter: &Filter, deadline: Instant) -> Result<Hits, Unread> {
        let mut statement = Statement::new(Dialect::Postgres);
        self.with_words(&mut statement, filter);
        let (table, conditions) = (self.table(), statement.conditions());
        let sql = format!("select count(*) from (select 1 from {table} where {conditions} limit {FEW}) as found");
        let rows = self.query(deadline, &sql, &statement.values).await?;
        let counted = rows.first().map_or(0, |row| row.get::<_, i64>(0));
        let counted = usize::try_from(counted).unwrap_or(FEW);
        Ok(Hits { counted, is_all: counted < FEW, ..Hits::default() })
    }
}

#[async_trait]
impl Backend for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    async fn hits(&self, filter: &Filter, deadline: Instant, _is_patient: bool) -> Result<Hits, Unread> {
        // If the count takes too long, many rows match.
        Ok(self.counted(filter, deadline).await.unwrap_or_default())
    }

    async fn look(&self, look: Look<'_>) -> Result<Vec<Row>, Unread> {
        let Look { filter, window, below, limit, deadline, .. } = look;
        let mut statement = Statement::new(Dialect::Postgres);
        statement.filtered(filter);
        statement.within(window, below);
        self.with_words(&mut statement, filter);
        let (table, columns, conditions) = (self.table(), columns(""), statement.conditions());
        // Sort by the columns, not by their texts.
        let order = NEWEST_FIRST;
        let Some(words) = &filter.words else {
            let sql = format!("select {columns} from {table} where {conditions} order by {order} limit {limit}");
            return Ok(self.query(deadline, &sql, &statement.values).await?.iter().map(read).collect());
        };
        // Read the texts only for the rows that are shown.
        let (texts, search) = (texts(Dialect::Postgres), self.settings.search);
        let rows = format!("select * from {table} where {conditions} order by {order} limit {limit}");
        let sql = format!("select {columns}, {texts} from ({rows}) as found order by {order}");
        let with_piece = |row: &tokio_postgres::Row| {
            let texts: Vec<String> = (0..LOOKED_THROUGH.len()).map(|at| row.get(LISTED.len() + at)).collect();
            Row { piece: piece(words, search, &texts), ..read(row) }
        };
        Ok(self.query(deadline, &sql, &statement.values).await?.iter().map(with_piece).collect())
    }

    async fn sample(&self, most: usize) -> Result<Sample, Unread> {
        let deadline = Instant::now() + SMALL;
        let table = self.table();
        // With few channels, read many rows of each. With many channels, read few rows of each.
        let channels = "count(distinct channel_id)";
        let counted = self.query(deadline, &self.newest(channels, 1), &[]).await?;
        let count = counted.first().map_or(1, |row| row.get::<_, i64>(0)).max(1);
        let each = most / usize::try_from(count).unwrap_or(1) + 1;
        let what = columns("newest.");
        let sql = format!("{} order by newest.\"time\" desc nulls last limit {most}", self.newest(&what, each));
        let rows: Vec<_> = self.query(deadline, &sql, &[]).await?.iter().map(read).collect();
        let total = if rows.len() < most {
            rows.len() as u64
        } else {
            let sql = "select reltuples::bigint from pg_class where oid = to_regclass($1)";
            let counted = self.query(deadline, sql, &[Value::Text(table)]).await?;
            counted.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0)
        };
        Ok(Sample { rows, total })
    }

    async fn mark(&self) -> Result<String, Unread> {
        let newest = "coalesce((extract(epoch from max(delivered)) * 1000000)::bigint, 0)";
        let rows = self.query(Instant::now() + SMALL, &self.newest(newest, 20), &[]).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0)).to_string())
    }

    async fn arrived(&self, filter: &Filter, mark: &str) -> Result<usize, Unread> {
        let mark = mark.parse().map_err(|_| Unread::Failed("The mark is none of this table.".to_owned()))?;
        let mut statement = Statement::new(Dialect::Postgres);
        let after = statement.parameter(Value::Number(mark));
        statement.conditions.push(format!("delivered > timestamptz 'epoch' + {after} * interval '1 microsecond'"));
        statement.filtered(filter);
        self.with_words(&mut statement, filter);
        let conditions = statement.conditions();
        let sql = format!("{} where {conditions}", self.newest("count(*)", LOOKED_AT));
        let rows = self.query(Instant::now() + SMALL, &sql, &statement.values).await?;
        let count = rows.first().map_or(0, |row| row.get::<_, i64>(0));
        Ok(usize::try_from(count).unwrap_or(MOST_NEW).min(MOST_NEW))
    }

    async fn followed(&self, channel: ChannelId, offset: i64) -> Result<Option<Timestamp>, Unread> {
        let (table, first) = (self.table(), as_text("min(delivered)"));
        let sql = format!(
            "select {first} from (select delivered from {table} where channel_id = $1::uuid and event_offset > $2 \
             order by event_offset limit {FOLLOWING}) as following"
        );
        let values = [Value::Text(channel.to_string()), Value::Number(offset)];
        let rows = self.query(Instant::now() + SMALL, &sql, &values).await?;
        let first = rows.first().and_then(|row| row.get::<_, Option<String>>(0));
        Ok(first.and_then(|first| first.parse().ok()))
    }

    async fn whole(&self, channel: ChannelId, offset: i64) -> Result<Option<Whole>, Unread> {
        let (table, columns) = (self.table(), columns(""));
        let sql = format!(
            "select {columns}, '0x' || encode(digest, 'hex'), record from {table} \
             where channel_id = $1::uuid and event_offset = $2 order by delivered desc limit 1"
        );
        let values = [Value::Text(channel.to_string()), Value::Number(offset)];
        let rows = self.query(Instant::now() + SMALL, &sql, &values).await?;
        Ok(rows.first().map(|row| Whole {
            row: read(row),
            digest: row.get(LISTED.len()),
            record: row.get(LISTED.len() + 1),
        }))
    }
}

/// The columns of a list. Each is selected as text, except the offset.
fn columns(of: &str) -> String {
    let column = |name: &str| match name {
        "event_offset" => format!("{of}event_offset"),
        "time" | "received" | "delivered" => as_text(&format!("{of}\"{name}\"")),
        // The text has another name, because the rows are sorted by the column itself.
        "channel_id" | "event_id" => format!("{of}{name}::text as {name}_text"),
        name => format!("{of}\"{name}\""),
    };
    LISTED.map(column).join(", ")
}

/// A time as text, in the format that SQLite tables use.
fn as_text(time: &str) -> String {
    format!("to_char({time} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
}

fn read(row: &tokio_postgres::Row) -> Row {
    let text = |at: usize| row.get::<_, Option<String>>(at);
    let needed = |at: usize| text(at).unwrap_or_default();
    let time = |at: usize| text(at).and_then(|text| text.parse().ok());
    Row {
        channel: needed(0),
        channel_id: needed(1),
        offset: row.get(2),
        event_id: text(3),
        kind: needed(4),
        name: text(5),
        source: text(6),
        service: text(7),
        network: text(8),
        time: time(9),
        received: time(10),
        delivered: time(11),
        status: text(12),
        verification: needed(13),
        piece: None,
    }
}
