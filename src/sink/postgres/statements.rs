//! The statements over the tables.

use crate::settings::PostgresSettings;
use crate::table::{COLUMNS, CellKind, NO_ID, joined, names, operations, probe, progress, quoted};

/// How many parameters of an insert precede the parameters of the columns.
const BEFORE: usize = 6;

/// An SQL expression that identifies the server process that executes a statement. After a crash of the server, either the
/// process id or the start time of the server is different.
const BACKEND: &str = "concat(pg_backend_pid(), ' since ', extract(epoch from pg_postmaster_start_time()))";

/// The statements. `$1` and `$2` are the channel and the sink, except in `copy`, `oldest` and `holds`.
#[derive(Debug)]
pub(super) struct Statements {
    /// Moves the lane from position `$5` to `$3` under epoch `$4`, writes rows, and merges operations. `$6` determines whether the commit waits
    /// for the disk. Returns the number of lanes that were moved, and the server process that executed the statement.
    pub(super) insert: String,
    /// Copies a row of channel `$1`, with the values of [`probe::changed`] from `$2` on. Only for a transaction that is rolled
    /// back. Returns a row if the table has a row to copy.
    pub(super) copy: String,
    /// Takes the lane over under epoch `$4` and sets its position to `$3`, even if `$3` is lower than the position. `$5`
    /// and `$6` are the offsets and ids of pending events. Returns the same columns as [`claim`](Self::claim).
    pub(super) adopt: String,
    /// Takes the lane over under epoch `$4` and changes nothing else. The parameters are the same as for
    /// [`adopt`](Self::adopt). Returns whether the lane is ours, whether it had a row, its position, and the offsets and ids
    /// of the pending events that have a row.
    pub(super) claim: String,
    /// Returns the lane's position and epoch. Fails if one of the two tables is missing.
    pub(super) position: String,
    /// Selects the 1,000 events of channel `$1` with the lowest offsets. Returns the offset and id of the event that was
    /// delivered first among them.
    pub(super) oldest: String,
    /// The offsets `$2` and the ids `$3` name events. Returns the named events that have a row in channel `$1`.
    pub(super) holds: String,
}

impl PostgresSettings {
    /// The qualified name of the table, quoted for SQL.
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }

    /// The qualified name of the table with the positions of lanes, quoted for SQL.
    pub(super) fn progress(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&progress(&self.table)))
    }

    /// The qualified name of the table of operations, quoted for SQL, if the sink has one.
    pub(super) fn operations(&self) -> Option<String> {
        let name = operations::table(&self.table);
        self.operations.then(|| format!("{}.{}", quoted(&self.schema), quoted(&name)))
    }

    /// The qualified name of the table with the positions of lanes, for messages.
    pub(super) fn progress_name(&self) -> String {
        format!("{}.{}", self.schema, progress(&self.table))
    }
}

impl Statements {
    pub(super) fn of(settings: &PostgresSettings) -> Self {
        let (table, progress, key) = (settings.quoted(), settings.progress(), key());
        let names = names();
        let arrays =
            |before: usize, count: usize| joined((1..=count).map(|number| format!("${}", before + number)), ", ");
        let values = COLUMNS.iter().map(|column| {
            let cast = if column.kind == CellKind::Json { "::jsonb" } else { "" };
            format!("given.{}{cast}", quoted(column.name))
        });
        let values = joined(values, ", ");
        let (rows, mut parameters) = (arrays(BEFORE, COLUMNS.len()), BEFORE + COLUMNS.len());
        let merged = match settings.operations() {
            Some(table) => {
                let (names, arrays) = (operations::names(), arrays(parameters, operations::COLUMNS.len()));
                parameters += operations::COLUMNS.len();
                let source = format!("select {names} from lane, unnest({arrays}) as given ({names})");
                format!(", merged as ({})", operations::upsert(&table, &source))
            }
            None => String::new(),
        };
        let [notified, note] = [1, 2].map(|number| parameters + number);
        let notify = match settings.notify {
            Some(_) => format!(", (select pg_notify(${notified}, ${note}) from written limit 1)"),
            None => String::new(),
        };
        let lane = "p.channel_id = $1 and p.sink = $2";
        // A lease that is not shared has epoch 0 and is always valid.
        let in_force = "(p.epoch <= $4 or $4 = 0)";
        let pending = "unnest($5::bigint[], $6::uuid[]) as pending (event_offset, event_id)";
        let is_pending = format!(
            "e.channel_id = $1 and e.event_offset = pending.event_offset and {} = {}",
            identity("e.event_id"),
            identity("pending.event_id")
        );
        let taken_over = format!(
            "select exists (select from lane), exists (select from {progress} as p where {lane}), \
             (select through from lane), coalesce(array_agg(e.event_offset), '{{}}'), coalesce(array_agg(e.event_id), '{{}}') \
             from {table} as e join {pending} on {is_pending}"
        );
        Self {
            insert: format!(
                "with lane as (update {progress} as p set through = greatest(p.through, $3), epoch = $4 \
                 where {lane} and {in_force} and p.through is not distinct from $5::bigint returning 1), \
                 written as (insert into {table} ({names}) \
                 select {values} from lane, unnest({rows}) as given ({names}) \
                 on conflict ({key}) do nothing returning 1){merged} \
                 select (select count(*) from lane), {BACKEND}, \
                 case when not $6 then set_config('synchronous_commit', 'off', true) end{notify}"
            ),
            copy: format!(
                "insert into {table} ({names}) select {} from {table} where channel_id = $1 \
                 order by event_offset desc limit 1 returning 1",
                probe::copied_columns(|at| format!("${}", at + 2))
            ),
            adopt: format!(
                "with lane as (insert into {progress} as p (channel_id, sink, through, epoch) values ($1, $2, $3, $4) \
                 on conflict (channel_id, sink) do update set through = excluded.through, epoch = excluded.epoch \
                 where {in_force} returning p.through) {taken_over}"
            ),
            claim: format!(
                "with lane as (update {progress} as p set epoch = $4 where {lane} and {in_force} \
                 returning p.through) {taken_over}"
            ),
            // The statement also mentions the table of events, so that it fails if this table is missing: a position without
            // its rows does not count.
            position: format!(
                "select p.through, p.epoch from {progress} as p where {lane} \
                 and not exists (select from {table} where false)"
            ),
            // The event with the lowest offset may not be the event that was delivered first. An event that was delivered
            // late has a low offset, and may still have a row when earlier rows have been deleted.
            oldest: format!(
                "select event_offset, event_id from (select event_offset, event_id, delivered from {table} \
                 where channel_id = $1 order by {key} limit 1000) as lowest order by delivered, event_offset limit 1"
            ),
            holds: format!(
                "select asked.event_offset, asked.event_id from unnest($2::bigint[], $3::uuid[]) as asked (event_offset, event_id) \
                 where exists (select from {table} as e where e.channel_id = $1 and e.event_offset = asked.event_offset \
                 and {} = {})",
                identity("e.event_id"),
                identity("asked.event_id")
            ),
        }
    }
}

/// The expressions of the unique index.
pub(super) fn key() -> String {
    format!("channel_id, event_offset, ({})", identity("event_id"))
}

/// An event's id in a comparison. A null is replaced, because it would be distinct from every other null.
pub(super) fn identity(id: &str) -> String {
    format!("coalesce({id}, '{NO_ID}'::uuid)")
}
