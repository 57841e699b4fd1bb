-- Claims a channel that no living instance owns. The epoch grows also where a failover has lost the last claim: it follows
-- the clock.
with known as (
    insert into {schema}.channels (channel_id) values ($1) on conflict do nothing
    returning channel_id
), free as (
    select c.channel_id from {schema}.channels c
    where c.channel_id = $1 and (c.owner is null or c.owner = $2 or not exists (
        select from {schema}.instances i where i.id = c.owner and i.heartbeat + i.lease > clock_timestamp()
    ))
    for update of c skip locked
)
update {schema}.channels c
set owner = $2, epoch = greatest(c.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
from free
where c.channel_id = free.channel_id
returning c.epoch, c.version
