//! The statements over the tables.

use super::PostgresSettings;
use crate::sink::table::{COLUMNS, Kind, joined, quoted};

/// Parameters of an insert before those of the columns.
const BEFORE: usize = 6;

/// The process of the server that carries a statement out. A new one after a crash has another number, or another start of the
/// server.
const BACKEND: &str = "concat(pg_backend_pid(), ' since ', extract(epoch from pg_postmaster_start_time()))";

/// The statements. `$1` to `$4` are the channel, the sink, the position and the epoch. `$5` is, of an insert, the position that
/// must have been reached before and, of a claim, the late events that are asked for. `$6` of an insert is whether its commit
/// waits for the disk. An insert gives how many lanes it has moved, and which process of the server has carried it out.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) insert: String,
    pub(super) claim: String,
}

impl Statements {
    pub(super) fn of(settings: &PostgresSettings) -> Self {
        let (table, progress) = (settings.quoted(), settings.progress());
        // A lease that is not shared has epoch 0 and is always in force.
        let lane = |condition: &str| {
            format!(
                "lane as (insert into {progress} as p (channel_id, sink, through, epoch) values ($1, $2, $3, $4) \
                 on conflict (channel_id, sink) do update set through = greatest(p.through, excluded.through), \
                 epoch = excluded.epoch where (p.epoch <= excluded.epoch or excluded.epoch = 0){condition} returning 1)"
            )
        };
        let (lane, lane_in_order) = (lane(""), lane(" and ($5::bigint is null or p.through >= $5)"));
        let names = joined(COLUMNS.iter().map(|column| quoted(column.name)), ", ");
        let arrays = joined((1..=COLUMNS.len()).map(|number| format!("${}", BEFORE + number)), ", ");
        let values = COLUMNS.iter().map(|column| {
            let cast = if column.kind == Kind::Json { "::jsonb" } else { "" };
            format!("given.{}{cast}", quoted(column.name))
        });
        let values = joined(values, ", ");
        let [notified, note] = [1, 2].map(|number| BEFORE + COLUMNS.len() + number);
        let notify = match settings.notify {
            Some(_) => format!(", (select pg_notify(${notified}, ${note}) from written limit 1)"),
            None => String::new(),
        };
        Self {
            insert: format!(
                "with {lane_in_order}, written as (insert into {table} ({names}) \
                 select {values} from lane, unnest({arrays}) as given ({names}) \
                 on conflict (channel_id, event_offset) do nothing returning 1) \
                 select (select count(*) from lane), {BACKEND}, \
                 case when not $6 then set_config('synchronous_commit', 'off', true) end{notify}"
            ),
            claim: format!(
                "with {lane} select coalesce((select array_agg(event_offset) from {table} \
                 where channel_id = $1 and event_offset = any($5)), '{{}}') from lane"
            ),
        }
    }
}
