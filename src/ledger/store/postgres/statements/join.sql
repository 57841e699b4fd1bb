-- This instance lives, and configures these channels, if this is still the state that it knows ($6). Without a row, it is not.
--
-- A late copy may name an earlier configuration: the next heartbeat finds that and joins again. It may prolong the time
-- that a dead instance is taken for alive by one lease, as a late heartbeat may. This delays its replacement, but the instance
-- cannot record anything: it claims with the epoch that it has seen, and counts its lease from before it sent the statement.
with here as (
    select from {schema}.state where id = $6
), known as (
    insert into {schema}.channels (channel_id)
    select unnest($5::uuid[]) where exists (select from here)
    on conflict do nothing
)
insert into {schema}.instances as i (id, name, lease, configuration, channels, heartbeat)
select $1, $2, make_interval(secs => $3), $4, $5, clock_timestamp() where exists (select from here)
on conflict (id) do update
set heartbeat = excluded.heartbeat, configuration = excluded.configuration, channels = excluded.channels
returning id
