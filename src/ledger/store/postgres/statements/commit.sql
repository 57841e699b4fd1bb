-- The effects of some channels. A row is given for each that is still the writer's; of the others nothing is written.
-- A channel whose version is behind what was recorded before has lost commits in a failover: it is not the writer's either.
with mine as (
    update {schema}.channels c
    set version = given.version, held_back = given.held_back
    from unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], $13::bytea[])
        as given (channel_id, epoch, recorded, version, held_back)
    where c.channel_id = given.channel_id and c.owner = $1 and c.epoch = given.epoch and c.version >= given.recorded
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
select channel_id from mine
