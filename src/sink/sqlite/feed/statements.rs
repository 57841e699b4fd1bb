//! The statements of the feed, and the values of their rows.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::super::SqliteSettings;
use crate::feed::lease::fitting;
use crate::feed::{ChannelPosition, ConsumerState, FeedEvent, FeedPage, FeedPosition, PageSize};
use crate::table::{POSITION, consumers, progress, quoted};

/// The time of the database, in the form in which the table of consumers stores times. They sort as texts.
const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

/// A lease that ends later than this was taken before the clock was set back, and is not valid. It is twice the longest lease.
const LATEST: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+2 hours')";

/// `?1` is the consumer and `?2` the channel, except in the statements that read events: there `?1` is the channel.
pub(super) struct FeedStatements {
    pub(super) newest: String,
    pub(super) oldest: String,
    pub(super) events: String,
    pub(super) cursor: String,
    pub(super) take: String,
    /// The cursor and the last leased position of the valid lease `?3`. A lease of positions that the table has lost is not
    /// valid: other events may get these positions.
    pub(super) held: String,
    /// Sets the cursor to `?3`, and ends the lease.
    pub(super) set: String,
    pub(super) consumers: String,
    pub(super) channels: String,
}

impl FeedStatements {
    pub(super) fn of(settings: &SqliteSettings) -> Self {
        let (table, progress) = (quoted(&settings.table), quoted(&progress(&settings.table)));
        let consumers = quoted(&consumers(&settings.table));
        let of = "consumer = ?1 and channel_id = ?2";
        let is_leased = format!("ifnull(leased_until > {NOW} and leased_until <= {LATEST}, 0)");
        Self {
            newest: format!("select ifnull(max({POSITION}), 0) from {progress} where channel_id = ?1"),
            oldest: format!("select min({POSITION}) from {table} where channel_id = ?1 and {POSITION} > 0"),
            events: format!(
                "select {POSITION}, record from {table} \
                 where channel_id = ?1 and {POSITION} > ?2 and {POSITION} <= ?3 order by {POSITION} limit ?4"
            ),
            cursor: format!("select through, {is_leased} from {consumers} where {of}"),
            take: format!(
                "insert into {consumers} as c (consumer, channel_id, through, lease, leased_until, leased_through) \
                 values (?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?5), ?6) \
                 on conflict (consumer, channel_id) do update set lease = excluded.lease, \
                 leased_until = excluded.leased_until, leased_through = excluded.leased_through \
                 where c.through = excluded.through and not ifnull(c.leased_until > {NOW} and c.leased_until <= {LATEST}, 0)"
            ),
            held: format!(
                "select through, leased_through from {consumers} where {of} and lease = ?3 and {is_leased} \
                 and leased_through <= (select ifnull(max({POSITION}), 0) from {progress} where channel_id = ?2)"
            ),
            set: format!(
                "insert into {consumers} (consumer, channel_id, through) values (?1, ?2, ?3) \
                 on conflict (consumer, channel_id) do update set through = excluded.through, lease = null, \
                 leased_until = null, leased_through = null"
            ),
            consumers: format!(
                "select consumer, channel_id, through, case when {is_leased} then leased_until end, \
                 (select delivered from {table} as e where e.channel_id = c.channel_id and e.{POSITION} > c.through \
                 and e.{POSITION} > 0 order by e.{POSITION} limit 1), \
                 ifnull(through < (select max(p.{POSITION}) from {progress} as p where p.channel_id = c.channel_id), 0) \
                 and not exists (select 1 from {table} as e where e.channel_id = c.channel_id and e.{POSITION} = c.through + 1) \
                 from {consumers} as c order by consumer, channel_id"
            ),
            channels: format!(
                "select p.channel_id, max(p.{POSITION}), \
                 (select min(e.{POSITION}) from {table} as e where e.channel_id = p.channel_id and e.{POSITION} > 0), \
                 (select delivered from {table} as e where e.channel_id = p.channel_id and e.{POSITION} > 0 \
                 order by e.{POSITION} limit 1) from {progress} as p group by p.channel_id"
            ),
        }
    }

    pub(super) fn position(&self, connection: &Connection, channel: &str) -> rusqlite::Result<FeedPosition> {
        let newest = connection.prepare(&self.newest)?.query_row([channel], |row| row.get(0))?;
        let oldest = connection.prepare(&self.oldest)?.query_row([channel], |row| row.get(0))?;
        Ok(FeedPosition::of(oldest, newest))
    }

    pub(super) fn page(
        &self,
        connection: &Connection,
        channel: &str,
        after: i64,
        most: PageSize,
    ) -> rusqlite::Result<FeedPage> {
        let position = self.position(connection, channel)?;
        let mut select = connection.prepare(&self.events)?;
        let limit = i64::try_from(most.events).unwrap_or(i64::MAX);
        let event = |row: &Row<'_>| Ok(FeedEvent { position: row.get(0)?, record: row.get_ref(1)?.as_str()?.into() });
        let events = select.query_map(params![channel, after, position.newest, limit], event)?;
        let mut fits = fitting(most.bytes);
        let events = events.take_while(|event| event.as_ref().ok().is_none_or(&mut fits));
        Ok(FeedPage::of(after, events.collect::<rusqlite::Result<_>>()?, position))
    }
}

/// A row of the table of consumers. `None` if its channel is not an id.
pub(super) fn state(row: &Row<'_>) -> rusqlite::Result<Option<ConsumerState>> {
    let Ok(channel) = Uuid::try_parse(row.get_ref(1)?.as_str()?) else { return Ok(None) };
    let (consumer, through) = (row.get(0)?, row.get(2)?);
    let (leased_until, waiting_since, is_gone) = (time(row, 3)?, time(row, 4)?, row.get(5)?);
    Ok(Some(ConsumerState { consumer, channel, through, leased_until, waiting_since, is_gone }))
}

/// The positions of a channel. `None` if the channel is not an id.
pub(super) fn channel_position(row: &Row<'_>) -> rusqlite::Result<Option<ChannelPosition>> {
    let Ok(channel) = Uuid::try_parse(row.get_ref(0)?.as_str()?) else { return Ok(None) };
    let newest = row.get::<_, Option<i64>>(1)?.unwrap_or_default();
    let (position, oldest_since) = (FeedPosition::of(row.get(2)?, newest), time(row, 3)?);
    Ok(Some(ChannelPosition { channel, position, oldest_since }))
}

fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get_ref(column)?.as_str_or_null()?.and_then(|time| time.parse().ok()))
}
