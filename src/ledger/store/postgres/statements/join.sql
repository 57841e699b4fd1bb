-- Registers this instance and its configured channels. Returns no row if this is no longer the state that the instance has
-- used before ($6).
--
-- A delayed copy may register an earlier configuration. The next heartbeat notices this, and the instance registers again.
-- A delayed copy may also prolong, by one lease, the time for which the others consider a dead instance alive. This delays
-- its replacement, but the dead instance cannot record anything: it claims with the epoch that it has read, and it counts
-- its lease from a time before it sent the statement.
with here as (
    select from {schema}.state where id = $6
), known as (
    insert into {schema}.channels (channel_id)
    select id from unnest($5::uuid[]) as configured (id)
    where exists (select from here) and not exists (select from {schema}.channels where channel_id = configured.id)
    on conflict do nothing
)
insert into {schema}.instances as i (id, name, lease, configuration, channels, settings, settings_digest, heartbeat)
select $1, $2, make_interval(secs => $3), $4, $5, $7, $8, clock_timestamp() where exists (select from here)
on conflict (id) do update
set heartbeat = excluded.heartbeat, configuration = excluded.configuration, channels = excluded.channels,
    settings = excluded.settings, settings_digest = excluded.settings_digest
returning id
