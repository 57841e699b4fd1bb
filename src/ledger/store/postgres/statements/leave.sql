-- This instance is no more.
with released as (
    update {schema}.channels set owner = null, released = clock_timestamp() where owner = $1
)
delete from {schema}.instances where id = $1
