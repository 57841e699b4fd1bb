-- Returns for each channel its live owner, or for how many seconds the channel has had none, and its quarantined events
-- whose proofs other channels showed first. The statement runs often and reads all channels, so it reads the last owner's
-- row only for channels without a live owner.
with live as materialized (
    select id from {schema}.instances where heartbeat + lease > clock_timestamp()
)
select c.channel_id, c.epoch, live.id as owner, case when live.id is null then extract(epoch from clock_timestamp() - coalesce(
    (select d.heartbeat + d.lease from {schema}.instances d where d.id = c.owner), c.released
))::float8 end as orphaned, c.held_back
from {schema}.channels c
left join live on live.id = c.owner
