-- This instance lives, and configures what it did before: nothing where it is not known, or configured something else.
with forgotten as (
    delete from {schema}.instances where heartbeat + 100 * lease < clock_timestamp() and id <> $1
)
update {schema}.instances set heartbeat = clock_timestamp() where id = $1 and configuration = $2
returning id
