-- Releases all channels of this instance, which ends, and removes the instance.
--
-- A delayed copy is harmless: the id belongs to one process, and this process claims nothing after this statement.
with released as (
    update {schema}.channels set owner = null, released = clock_timestamp() where owner = $1
)
delete from {schema}.instances where id = $1
