//! The statements of the feed.

use crate::settings::PostgresSettings;
use crate::table::POSITION;

/// Whether a lease is valid. A lease that ends after twice the longest time was taken before the clock of the server was set back.
const IS_LEASED: &str = "coalesce(c.leased_until > clock_timestamp() \
     and c.leased_until <= clock_timestamp() + interval '2 hours', false)";

/// `$1` is the consumer and `$2` the channel, except in the statements that read events: there `$1` is the channel.
pub(super) struct FeedStatements {
    pub(super) position: String,
    /// Returns the positions of the channel with each event after `$2`, or once without an event.
    pub(super) page: String,
    pub(super) cursor: String,
    pub(super) take: String,
    /// Moves the cursor to `$4` under the lease `$3`. Returns whether the lease is valid, and whether the cursor was moved. A lease
    /// of positions that the table has lost is not valid: other events may get these positions.
    pub(super) commit: String,
    /// Sets the cursor to `$3`, and ends the lease.
    pub(super) set: String,
    pub(super) consumers: String,
    pub(super) channels: String,
    /// Changes whenever rows become readable.
    pub(super) total: String,
}

impl FeedStatements {
    pub(super) fn of(settings: &PostgresSettings) -> Self {
        let (table, progress) = (settings.quoted(), settings.progress());
        let consumers = settings.consumers().unwrap_or_default();
        // The rows above the newest position are not on the server's disk yet.
        let position = format!(
            "select (select min({POSITION}) from {table} where channel_id = $1 and {POSITION} > 0) as oldest, \
             coalesce((select max({POSITION}) from {progress} where channel_id = $1), 0) as newest"
        );
        let of = "c.consumer = $1 and c.channel_id = $2";
        let ended = "lease = null, leased_until = null, leased_through = null";
        Self {
            page: format!(
                "with channel as ({position}), \
                 event as (select {POSITION}, record, \
                 sum(octet_length(record)) over (order by {POSITION}) - octet_length(record) as bytes_before \
                 from (select {POSITION}, record from {table} where channel_id = $1 and {POSITION} > $2 \
                 and {POSITION} <= (select newest from channel) order by {POSITION} limit $3) as next) \
                 select channel.oldest, channel.newest, event.{POSITION}, event.record from channel \
                 left join event on event.bytes_before < $4 order by event.{POSITION}"
            ),
            position,
            cursor: format!("select c.through, {IS_LEASED} from {consumers} as c where {of}"),
            take: format!(
                "insert into {consumers} as c (consumer, channel_id, through, lease, leased_until, leased_through) \
                 values ($1, $2, $3, $4, clock_timestamp() + $5 * interval '1 millisecond', $6) \
                 on conflict (consumer, channel_id) do update set lease = excluded.lease, \
                 leased_until = excluded.leased_until, leased_through = excluded.leased_through \
                 where c.through = excluded.through \
                 and not {IS_LEASED} returning 1"
            ),
            commit: format!(
                "with held as (select c.through, c.leased_through from {consumers} as c \
                 where {of} and c.lease = $3 and {IS_LEASED} \
                 and c.leased_through <= (select max({POSITION}) from {progress} where channel_id = $2) for no key update), \
                 moved as (update {consumers} as c set through = $4, {ended} from held \
                 where {of} and $4 > held.through and $4 <= held.leased_through returning 1) \
                 select exists (select from held), exists (select from moved)"
            ),
            set: format!(
                "insert into {consumers} (consumer, channel_id, through) values ($1, $2, $3) \
                 on conflict (consumer, channel_id) do update set through = excluded.through, {ended}"
            ),
            consumers: format!(
                "select c.consumer, c.channel_id, c.through, {}, \
                 {IS_LEASED}, \
                 (select {} from {table} as e where e.channel_id = c.channel_id and e.{POSITION} > c.through \
                 and e.{POSITION} > 0 order by e.{POSITION} limit 1), \
                 coalesce(c.through < (select max(p.{POSITION}) from {progress} as p where p.channel_id = c.channel_id), false) \
                 and not exists (select from {table} as e where e.channel_id = c.channel_id and e.{POSITION} = c.through + 1) \
                 from {consumers} as c order by c.consumer, c.channel_id",
                microseconds("c.leased_until"),
                microseconds("e.delivered")
            ),
            channels: format!(
                "select p.channel_id, p.newest, e.{POSITION}, {} from \
                 (select channel_id, max({POSITION}) as newest from {progress} group by channel_id) as p \
                 left join lateral (select {POSITION}, delivered from {table} as t \
                 where t.channel_id = p.channel_id and t.{POSITION} > 0 order by t.{POSITION} limit 1) as e on true",
                microseconds("e.delivered")
            ),
            total: format!("select coalesce(sum({POSITION}), 0)::bigint from {progress}"),
        }
    }
}

/// The SQL for a time in microseconds since 1970.
fn microseconds(column: &str) -> String {
    format!("(extract(epoch from {column}) * 1000000)::bigint")
}
