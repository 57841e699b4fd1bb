-- This instance lives, and configures what it did before. No row is returned if it is not known, or configured something else.
--
-- A late copy prolongs the time that others take the instance for alive by one lease at most, see `join.sql`. It does not
-- bring back an instance that has left: it inserts nothing.
with forgotten as (
    delete from {schema}.instances where heartbeat + 100 * lease < clock_timestamp() and id <> $1
)
update {schema}.instances set heartbeat = clock_timestamp() where id = $1 and configuration = $2
returning id
