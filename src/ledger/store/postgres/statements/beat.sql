-- The heartbeat of an instance whose published configuration has not changed. Returns no row if the instance is not
-- registered, or is registered with another configuration. Also removes those of the instances $3 that died long ago: after a
-- long outage, instances that still run seem to have died as well.
--
-- A delayed copy can prolong the time for which the others consider the instance alive, by at most one lease (see
-- `join.sql`). It does not bring back an instance that has left, because it inserts nothing.
with forgotten as (
    delete from {schema}.instances where heartbeat + 100 * lease < clock_timestamp() and id = any($3)
)
update {schema}.instances set heartbeat = clock_timestamp()
where id = $1 and configuration || coalesce(settings_digest, '') = $2
returning id
