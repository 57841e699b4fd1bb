//! The statements over the tables.

use crate::MAX_HELD;
use crate::settings::PostgresSettings;
use crate::table::{COLUMNS, CellKind, NO_ID, POSITION, consumers, joined, names, operations, probe, progress, quoted};

/// How many parameters of an insert precede the parameters of the columns.
const BEFORE: usize = 7;

/// An SQL expression that identifies the server process that executes a statement. After a crash of the server, either the
/// process id or the start time of the server is different.
const BACKEND: &str = "concat(pg_backend_pid(), ' since ', extract(epoch from pg_postmaster_start_time()))";

/// The name of a setting that does not exist. A statement that reads it fails with an error that contains this name. Plain SQL has no other
/// way to raise an error that the sink can recognize.
pub(super) const SUPPRESSED_ROW: &str = "channeld.suppressed_row";

/// The statements. `$1` and `$2` are the channel and the sink, except in `copy`, `oldest`, `holds` and `between`.
#[derive(Debug)]
pub(super) struct Statements {
    /// Moves the lane from position `$5` to `$3` under epoch `$4`, writes rows, and merges operations. `$6` determines whether the
    /// commit waits for the disk. `$7` determines whether the statement writes only if every row of the channel has a position.
    /// Returns the number of lanes that were moved, the server process that executed the statement, whether the statement
    /// was able to assign positions, and how many cursors of consumers were moved back.
    ///
    /// The statement first locks all lanes of the channel, so that the writers of one channel assign positions one after the
    /// other. Its snapshot is older than the lock. If another writer has committed in between, the snapshot lacks rows, and
    /// the statement writes nothing: every writer changes all lanes of the channel, so the locked rows then have another version.
    ///
    /// The whole statement also fails if a trigger suppresses a row without an error. Otherwise the row would count as delivered, and
    /// leave a gap in the positions. See [`SUPPRESSED_ROW`].
    ///
    /// If another program writes one of these rows at the same time, the key refuses the whole statement, and the rows are written
    /// apart. Skipping this row alone would leave a gap in the positions, and costs the server more for each row.
    pub(super) insert: CursorForms,
    /// Numbers at most `$2` rows of channel `$1` that have no position, in the order of delivery. Returns how many rows were
    /// numbered, whether none of them is left, and how many cursors of consumers were moved back.
    pub(super) number: CursorForms,
    /// Copies a row of channel `$1`, with the values of [`probe::changed`] from `$2` on. Only for a transaction that is rolled
    /// back. Returns a row if the table has a row to copy.
    pub(super) copy: String,
    /// Takes the lane over under epoch `$4` and sets its position to `$3`, even if `$3` is lower than the position. `$5`
    /// and `$6` are the offsets and ids of pending events. Returns the same columns as [`claim`](Self::claim).
    ///
    /// Both statements record the newest position of the rows, in case the lane's row was removed or is older than the rows. Their
    /// commit waits for the disk, and every row that they see is then on it.
    pub(super) adopt: String,
    /// Takes the lane over under epoch `$4` and changes nothing else. The parameters are the same as for
    /// [`adopt`](Self::adopt). Returns whether the lane is ours, whether it had a row, its position, and the offsets and ids
    /// of the pending events that have a row, whether the channel has rows without a position, and whether the role may move the
    /// cursors of consumers: null if the table of consumers does not exist.
    pub(super) claim: String,
    /// Returns the lane's position and epoch. Fails if one of the two tables is missing.
    pub(super) position: String,
    /// Selects the 1,000 events of channel `$1` with the lowest offsets. Returns the offset and id of the event that was
    /// delivered first among them.
    pub(super) oldest: String,
    /// The offsets `$2` and the ids `$3` name events. Returns the named events that have a row in channel `$1`.
    pub(super) holds: String,
    /// Returns the offsets and ids of the events of channel `$1` above the offset `$2`, up to `$3`, in the order of writing. Limited
    /// to [`MAX_HELD`].
    pub(super) between: String,
}

/// A statement that assigns positions, in two forms. Even if this instance serves no feed, the table of consumers can exist, because
/// another instance serves one.
#[derive(Debug)]
pub(super) struct CursorForms {
    /// Also moves the cursors of consumers back. Fails if the table of consumers does not exist, or if the role may not change it.
    pub(super) moving: String,
    pub(super) plain: String,
}

impl CursorForms {
    fn of(statement: impl Fn(bool) -> String) -> Self {
        Self { moving: statement(true), plain: statement(false) }
    }
}

impl PostgresSettings {
    /// A name in the schema, qualified and quoted for SQL.
    pub(super) fn qualified(&self, name: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(name))
    }

    /// The qualified name of the table, quoted for SQL.
    pub(super) fn quoted(&self) -> String {
        self.qualified(&self.table)
    }

    /// The qualified name of the table with the positions of lanes, quoted for SQL.
    pub(super) fn progress(&self) -> String {
        self.qualified(&progress(&self.table))
    }

    /// The qualified name of the table of operations, quoted for SQL, if the sink has one.
    pub(super) fn operations(&self) -> Option<String> {
        self.operations.then(|| self.qualified(&operations::table(&self.table)))
    }

    /// The qualified name of the table of consumers, quoted for SQL, if a feed reads the table.
    pub(super) fn consumers(&self) -> Option<String> {
        self.feed.then(|| self.consumers_of_any_feed())
    }

    /// Like [`consumers`](Self::consumers), also if this instance serves no feed.
    pub(super) fn consumers_of_any_feed(&self) -> String {
        self.qualified(&consumers(&self.table))
    }

    /// The notification channel of the feed.
    pub(super) fn feed_channel(&self) -> String {
        // PostgreSQL limits the name to 63 bytes, as for a table. A schema with a long name does not fit, so it is not named: a
        // notification of another table causes one more query.
        format!("channeld_{}", self.table)
    }

    /// The qualified name of the table with the positions of lanes, for messages.
    pub(super) fn progress_name(&self) -> String {
        format!("{}.{}", self.schema, progress(&self.table))
    }
}

impl Statements {
    pub(super) fn of(settings: &PostgresSettings) -> Self {
        let (table, progress, key, names) = (settings.quoted(), settings.progress(), key(), names());
        let lane = "p.channel_id = $1 and p.sink = $2";
        let newest_row = format!("coalesce((select max(r.{POSITION}) from {table} as r where r.channel_id = $1), 0)");
        let pending = "unnest($5::bigint[], $6::uuid[]) as pending (event_offset, event_id)";
        let is_pending = is_row_of("pending");
        let taken_over = format!(
            "select exists (select from lane), exists (select from {progress} as p where {lane}), \
             (select through from lane), coalesce(array_agg(e.event_offset), '{{}}'), \
             coalesce(array_agg(e.event_id), '{{}}'), exists ({}), ({}) \
             from {table} as e join {pending} on {is_pending}",
            unnumbered(&table),
            may_move(settings)
        );
        Self {
            insert: CursorForms::of(|moves| insert(settings, moves)),
            number: CursorForms::of(|moves| number(settings, moves)),
            copy: format!(
                "insert into {table} ({names}) select {} from {table} where channel_id = $1 \
                 order by event_offset desc limit 1 returning 1",
                probe::copied_columns(|at| format!("${}", at + 2))
            ),
            adopt: format!(
                "with lane as (insert into {progress} as p (channel_id, sink, through, epoch, {POSITION}) \
                 values ($1, $2, $3, $4, {newest_row}) \
                 on conflict (channel_id, sink) do update set through = excluded.through, epoch = excluded.epoch, \
                 {POSITION} = greatest(p.{POSITION}, excluded.{POSITION}) \
                 where {IN_FORCE} returning p.through) {taken_over}"
            ),
            claim: format!(
                "with lane as (update {progress} as p set epoch = $4, {POSITION} = greatest(p.{POSITION}, {newest_row}) \
                 where {lane} and {IN_FORCE} \
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
                 where exists (select from {table} as e where {})",
                is_row_of("asked")
            ),
            // The addition prevents a search of the whole channel in the order of writing.
            between: format!(
                "select event_offset, event_id from {table} where channel_id = $1 and event_offset > $2 and event_offset <= $3 \
                 order by {POSITION} + 0 limit {MAX_HELD}"
            ),
        }
    }
}

/// The statement that writes rows and moves the lane's position. `moves` determines its form.
fn insert(settings: &PostgresSettings, moves: bool) -> String {
    let (table, progress, names) = (settings.quoted(), settings.progress(), names());
    let parameter = |name: &str| {
        let at = COLUMNS.iter().position(|column| column.name == name).expect("the table has this column");
        format!("${}", BEFORE + at + 1)
    };
    let values = COLUMNS.iter().map(|column| {
        let cast = if column.kind == CellKind::Json { "::jsonb" } else { "" };
        format!("given.{}{cast}", quoted(column.name))
    });
    let values = joined(values, ", ");
    // In a `select` list, `unnest` copies no row. In a `from` clause, and below a window function, the server stores all rows first.
    let rows = COLUMNS.iter().map(|column| format!("unnest({}) as {}", parameter(column.name), quoted(column.name)));
    let (rows, mut parameters) = (joined(rows, ", "), BEFORE + COLUMNS.len());
    let merged = match settings.operations() {
        Some(table) => {
            let first = parameters + 1;
            parameters += operations::COLUMNS.len();
            let arrays = joined((first..=parameters).map(|number| format!("${number}")), ", ");
            let names = operations::names();
            let source = format!("select {names} from lane, unnest({arrays}) as given ({names}) where lane.is_ready");
            format!(", merged as ({})", operations::upsert(&table, &source))
        }
        None => String::new(),
    };
    let [notified, note] = [1, 2].map(|number| parameters + number);
    let notify =
        settings.notify.as_ref().map(|_| format!(", (select pg_notify(${notified}, ${note}) from written limit 1)"));
    let notify = notify.unwrap_or_default();
    // Rows become readable for the feed when they are on the disk.
    let feed = settings.feed.then(|| {
        let channel = settings.feed_channel();
        format!(", case when $6 then (select pg_notify('{channel}', $1::text) from moved limit 1) end")
    });
    let feed = feed.unwrap_or_default();
    let (locked, is_current) = (locked(&progress), IS_CURRENT);
    let (newest, moved_back) = (newest(&table), moved_back(settings, moves, "lane", "is_ready"));
    let [offsets, ids] = ["event_offset", "event_id"].map(parameter);
    // An event above the highest offset has no row. Most events are new, and need no search for their row then.
    let highest = format!("coalesce((select max(e.event_offset) from {table} as e where e.channel_id = $1), -1)");
    let unnumbered = unnumbered(&table);
    format!(
        "with {locked}, \
         lane as (select {newest} as newest, {highest} as highest, {is_current} and not ($7 and exists ({unnumbered})) as is_ready \
         from locked as p where p.sink = $2 and {IN_FORCE} and p.through is not distinct from $5::bigint), \
         existing as (select given.ordinal from unnest({offsets}, {ids}) with ordinality as given (event_offset, event_id, ordinal) \
         where given.event_offset <= (select highest from lane) and (select true from {table} as e \
         where {is_existing} limit 1)), \
         written as (insert into {table} ({names}, {POSITION}) \
         select {values}, lane.newest + given.ordinal - (select count(*) from existing as x where x.ordinal < given.ordinal) \
         from lane, (select {rows}, generate_series(1, cardinality({offsets})) as ordinal) as given \
         where lane.is_ready and given.ordinal not in (select x.ordinal from existing as x) \
         returning {POSITION}){merged}, {moved_back}, \
         moved as (update {progress} as p set \
         {POSITION} = case when $6 then coalesce((select max({POSITION}) from written), lane.newest) \
         else p.{POSITION} end, \
         through = case when p.sink = $2 then greatest(p.through, $3) else p.through end, \
         epoch = case when p.sink = $2 then $4 else p.epoch end \
         from lane where p.channel_id = $1 and lane.is_ready returning p.sink) \
         select (select count(*) from moved where sink = $2), {BACKEND}, \
         coalesce((select is_ready from lane), true), (select count(*) from moved_back), \
         case when not $6 then set_config('synchronous_commit', 'off', true) end, \
         case when (select is_ready from lane) and (select count(*) from written) < cardinality({offsets}) - (select count(*) from existing) \
         then current_setting('{SUPPRESSED_ROW}') end{notify}{feed}",
        is_existing = is_row_of("given"),
    )
}

/// The statement that gives positions to rows of an older version. `moves` determines its form.
fn number(settings: &PostgresSettings, moves: bool) -> String {
    let (table, progress) = (settings.quoted(), settings.progress());
    let (locked, is_current) = (locked(&progress), IS_CURRENT);
    let (newest, moved_back) = (newest(&table), moved_back(settings, moves, "channel", "is_current"));
    format!(
        "with {locked}, \
         channel as (select {newest} as newest, {is_current} as is_current), \
         unnumbered as (select event_offset, event_id, row_number() over (order by delivered, event_offset, event_id nulls first) as number \
         from (select event_offset, event_id, delivered from {table} as e \
         where e.channel_id = $1 and e.{POSITION} is null \
         order by delivered, event_offset, event_id nulls first limit $2) as first), \
         numbered as (update {table} as e set {POSITION} = channel.newest + u.number \
         from channel, unnumbered as u where channel.is_current and {is_row} returning e.{POSITION}), \
         moved as (update {progress} as p set {POSITION} = (select max({POSITION}) from numbered) \
         where p.channel_id = $1 and exists (select from numbered)), {moved_back} \
         select (select count(*) from numbered), (select count(*) from unnumbered) = 0, (select count(*) from moved_back)",
        is_row = is_row_of("u"),
    )
}

/// Moves the cursors of consumers back that are above the newest position, because the table was restored from a backup, and ends
/// their leases: the statement gives the positions above `newest` to rows that each consumer must receive. `from` has the newest
/// position, and the condition `holds`.
fn moved_back(settings: &PostgresSettings, moves: bool, from: &str, holds: &str) -> String {
    if !moves {
        return "moved_back as (select where false)".to_owned();
    }
    let consumers = settings.consumers_of_any_feed();
    format!(
        "moved_back as (update {consumers} as c set through = least(c.through, {from}.newest), lease = null, \
         leased_until = null, leased_through = null from {from} where {from}.{holds} and c.channel_id = $1 \
         and (c.through > {from}.newest or c.leased_through > {from}.newest) returning c.consumer)"
    )
}

/// A query for whether the role may move the cursors of consumers. Null if the table of consumers does not exist. The column distinguishes
/// this table from another program's table with the same name.
fn may_move(settings: &PostgresSettings) -> String {
    let consumers = settings.consumers_of_any_feed();
    format!(
        "select has_table_privilege(a.attrelid, 'select') and has_table_privilege(a.attrelid, 'update') \
         from pg_attribute as a where a.attrelid = to_regclass('{consumers}') and a.attname = 'leased_through'"
    )
}

/// A query for rows of an older version, which have no position.
fn unnumbered(table: &str) -> String {
    format!("select from {table} as e where e.channel_id = $1 and e.{POSITION} is null")
}

/// Whether the lease of the writer is valid. A lease that is not shared has epoch 0 and is always valid.
const IN_FORCE: &str = "(p.epoch <= $4 or $4 = 0)";

/// Whether no other writer has committed between the snapshot of the statement and the lock of the lanes.
const IS_CURRENT: &str = "not exists (select from locked as l join seen as s on s.sink = l.sink \
     where l.version is distinct from s.version)";

/// The lanes of channel `$1`: `seen` as the snapshot of the statement has them, and `locked` after they were locked, in an order in which
/// two statements cannot wait for each other.
fn locked(progress: &str) -> String {
    format!(
        "seen as (select p.sink, p.xmin as version from {progress} as p where p.channel_id = $1), \
         locked as (select p.sink, p.through, p.epoch, p.{POSITION}, p.xmin as version from {progress} as p \
         where p.channel_id = $1 order by p.sink for no key update)"
    )
}

/// The newest position of channel `$1`. The lanes have the newest position that is on the disk. Rows that are not on the disk
/// yet may have higher positions.
fn newest(table: &str) -> String {
    format!(
        "coalesce(greatest((select max({POSITION}) from locked), \
         (select max(e.{POSITION}) from {table} as e where e.channel_id = $1)), 0)"
    )
}

/// Whether the row `e` of channel `$1` has the offset and the id that `event` names.
fn is_row_of(event: &str) -> String {
    let [existing, id] = ["e", event].map(|row| identity(&format!("{row}.event_id")));
    format!("e.channel_id = $1 and e.event_offset = {event}.event_offset and {existing} = {id}")
}

/// The expressions of the unique index.
pub(super) fn key() -> String {
    format!("channel_id, event_offset, ({})", identity("event_id"))
}

/// An event's id in a comparison. A null is replaced, because it would be distinct from every other null.
pub(super) fn identity(id: &str) -> String {
    format!("coalesce({id}, '{NO_ID}'::uuid)")
}
