-- Who owns each channel and, where no living instance does, since how many seconds; and what it holds back. It is asked often,
-- of all channels: what needs a look at another row is asked only of those without an owner.
with live as materialized (
    select id from {schema}.instances where heartbeat + lease > clock_timestamp()
)
select c.channel_id, c.epoch, live.id as owner, case when live.id is null then extract(epoch from clock_timestamp() - coalesce(
    (select d.heartbeat + d.lease from {schema}.instances d where d.id = c.owner), c.released
))::float8 end as orphaned, c.held_back
from {schema}.channels c
left join live on live.id = c.owner
