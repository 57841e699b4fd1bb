-- The epoch of a channel, which is added if it is not known, and which state this is. A claim replaces the epoch that it was
-- told here. A late copy adds a channel that an instance has configured: nothing else changes.
with known as (
    insert into {schema}.channels (channel_id) values ($1) on conflict do nothing
    returning epoch
), channel as (
    select epoch from known
    union all
    select epoch from {schema}.channels where channel_id = $1
)
select channel.epoch, state.id from channel, {schema}.state
