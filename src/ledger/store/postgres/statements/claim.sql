-- Claims a channel that no living instance owns. The epoch grows also if a failover has lost the last claim: it follows the
-- clock.
--
-- A claim is bound to the epoch that the instance saw before ($3). Without that, a late copy of an earlier claim would end
-- the claim that the same instance works under now, or take a channel that it has released. An instance whose lease is over,
-- or that has left, claims nothing: a late copy would give it channels that nobody works.
with free as (
    select c.channel_id from {schema}.channels c
    where c.channel_id = $1 and c.epoch = $3 and (c.owner is null or c.owner = $2 or not exists (
        select from {schema}.instances i where i.id = c.owner and i.heartbeat + i.lease > clock_timestamp()
    )) and exists (
        select from {schema}.instances i where i.id = $2 and i.heartbeat + i.lease > clock_timestamp()
    )
    for update of c skip locked
)
update {schema}.channels c
set owner = $2, epoch = greatest(c.epoch + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
from free
where c.channel_id = free.channel_id
returning c.epoch, c.version
