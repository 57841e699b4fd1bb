-- Who owns each channel and, where nobody does who lives, since how many seconds.
select c.channel_id, c.epoch, i.id as owner, extract(epoch from clock_timestamp() - case
    when c.owner is null then c.released
    else coalesce((select d.heartbeat + d.lease from {schema}.instances d where d.id = c.owner), c.released)
end)::float8 as orphaned
from {schema}.channels c
left join {schema}.instances i on i.id = c.owner and i.heartbeat + i.lease > clock_timestamp()
