-- Whether an instance ($2) could claim a channel that has the epoch $3: no live instance owns it. Changes nothing, and does not
-- wait for locks.
select exists (
    select from {schema}.channels c
    where c.channel_id = $1 and c.epoch = $3 and (c.owner is null or c.owner = $2 or not exists (
        select from {schema}.instances i where i.id = c.owner and i.heartbeat + i.lease > clock_timestamp()
    )) and exists (
        select from {schema}.instances i where i.id = $2 and i.heartbeat + i.lease > clock_timestamp()
    )
)
