-- This instance lives, and configures these channels.
with known as (
    insert into {schema}.channels (channel_id) select unnest($5::uuid[]) on conflict do nothing
)
insert into {schema}.instances as i (id, name, lease, configuration, channels, heartbeat)
values ($1, $2, make_interval(secs => $3), $4, $5, clock_timestamp())
on conflict (id) do update
set heartbeat = excluded.heartbeat, configuration = excluded.configuration, channels = excluded.channels
