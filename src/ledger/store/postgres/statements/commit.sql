-- Writes the effects of several channels. Returns for each channel whether its effects were written, whether this instance
-- owns the channel under the given epoch, and the version that the database had before.
--
-- A server may execute a statement long after its sender has stopped waiting and has sent the same effects again, or newer
-- effects. `given.recorded` is the last version that was acknowledged to this instance. `given.version` is the version after
-- these effects. The version in the database decides:
-- * below `given.recorded`: the database has lost acknowledged commits, for example in a failover. Nothing is written.
-- * equal to `given.recorded`: nothing newer was written. The effects are written.
-- * above `given.recorded`, up to `given.version`: an earlier copy was executed, and its answer was lost. This statement
--   contains all changes of that copy, because a retry repeats them and appends newer changes. Writing them again changes
--   nothing.
-- * above `given.version`: this is a delayed copy. Newer effects were written since then, and must not be replaced.
--
-- Two copies may also be executed at the same time, and an operator's session may have locked the row of a channel. A channel
-- whose row is locked is skipped, so that the other channels do not wait for it. The first copy may also end between the
-- snapshot of the second copy and its lock: the second copy would not see, and therefore not delete, an entry that the first
-- copy has just inserted. The second copy therefore writes nothing if the row's version differs from the version in the
-- snapshot. In both cases the client sends the statement again.
with given as materialized (
    select * from unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $13::bytea[])
        as given (channel_id, epoch, recorded, version, held_back)
), seen as materialized (
    select given.channel_id, coalesce(c.owner = $1 and c.epoch = given.epoch, false) as is_ours,
        coalesce(c.version, 0) as version
    from given left join {schema}.channels c on c.channel_id = given.channel_id
), free as materialized (
    select c.channel_id from {schema}.channels c join given on given.channel_id = c.channel_id
    where c.owner = $1 and c.epoch = given.epoch
    for update of c skip locked
), mine as (
    update {schema}.channels c
    set version = given.version, held_back = given.held_back
    from given join seen on seen.channel_id = given.channel_id join free on free.channel_id = given.channel_id
    where c.channel_id = given.channel_id and c.owner = $1 and c.epoch = given.epoch
        and c.version between given.recorded and given.version and c.version = seen.version
    returning c.channel_id
), removed as (
    delete from {schema}.entries e
    using unnest($6::uuid[], $7::text[], $8::bytea[]) as given (channel_id, kind, key), mine
    where e.channel_id = given.channel_id and e.kind = given.kind and e.key = given.key
        and given.channel_id = mine.channel_id
), written as (
    insert into {schema}.entries (channel_id, kind, key, value)
    select given.channel_id, given.kind, given.key, given.value
    from unnest($9::uuid[], $10::text[], $11::bytea[], $12::bytea[]) as given (channel_id, kind, key, value)
    join mine on mine.channel_id = given.channel_id
    on conflict (channel_id, kind, key) do update set value = excluded.value
)
select seen.channel_id, mine.channel_id is not null, seen.is_ours, seen.version
from seen left join mine on mine.channel_id = seen.channel_id
