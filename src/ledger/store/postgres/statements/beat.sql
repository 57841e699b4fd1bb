-- This instance lives, and these are its channels. Instances that have been dead for long are forgotten.
with known as (
    insert into {schema}.channels (channel_id) select unnest($5::uuid[])
    where not exists (select from {schema}.instances where id = $1 and configuration = $4)
    on conflict do nothing
), forgotten as (
    delete from {schema}.instances where heartbeat + 100 * lease < clock_timestamp() and id <> $1
)
insert into {schema}.instances (id, name, lease, configuration, channels, heartbeat)
values ($1, $2, make_interval(secs => $3), $4, $5, clock_timestamp())
on conflict (id) do update
set heartbeat = excluded.heartbeat, configuration = excluded.configuration, channels = excluded.channels
