-- Returns the epoch of a channel and the id of the state. Adds the channel if it is new. The next claim requires the epoch
-- that is returned here.
--
-- A channel that exists is not inserted: the conflict would wait for another session that has changed the row.
--
-- A delayed copy only adds a channel that an instance has configured.
with known as (
    insert into {schema}.channels (channel_id)
    select $1 where not exists (select from {schema}.channels where channel_id = $1)
    on conflict do nothing
    returning epoch
), channel as (
    select epoch from known
    union all
    select epoch from {schema}.channels where channel_id = $1
)
select channel.epoch, state.id from channel, {schema}.state
