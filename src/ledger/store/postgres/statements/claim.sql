-- Claims a channel that no live instance owns. The new epoch follows the clock, so it is larger than the last epoch, even
-- if a failover has lost the last claim.
--
-- A claim requires the epoch that the instance has read before ($3). Without this condition, a delayed copy of an earlier
-- claim could replace the current lease of the same instance, or claim a channel that the instance has released. An
-- instance whose lease has ended, or that has left, cannot claim: a delayed copy would give it channels that it does not
-- run.
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
