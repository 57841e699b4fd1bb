-- Writes the effects of several channels. Each channel is answered with whether its effects were written, whether this
-- instance owns it under the given epoch, and the version that the database had before.
--
-- A server may execute a statement long after its sender gave up waiting and sent the same effects again, or newer ones.
-- `recorded` is the last version that was acknowledged to this instance, `version` the one that these effects lead to.
-- * version < recorded: the database has lost acknowledged commits, for example in a failover.
-- * version = recorded: nothing newer was written. The effects are.
-- * recorded < version <= given: an earlier copy was executed whose answer was lost. This statement contains all of its
--   changes, because a retry repeats them and adds newer ones behind them. Writing them again changes nothing.
-- * version > given: this is a late copy. Newer effects were written since, and the older ones must not replace them.
--
-- Two copies may also be executed at the same time. The second one waits for the lock on the channel's row, but its
-- snapshot is older than the first one's changes: it would not see, and not delete, an entry that the first one has just
-- inserted. Therefore nothing is written if the version is not the one in the snapshot; the client sends the statement again.
with given as materialized (
    select * from unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $13::bytea[])
        as given (channel_id, epoch, recorded, version, held_back)
), seen as materialized (
    select given.channel_id, coalesce(c.owner = $1 and c.epoch = given.epoch, false) as is_ours,
        coalesce(c.version, 0) as version
    from given left join {schema}.channels c on c.channel_id = given.channel_id
), mine as (
    update {schema}.channels c
    set version = given.version, held_back = given.held_back
    from given join seen on seen.channel_id = given.channel_id
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
