-- Releases all channels of this instance, and removes the instance, because its process ends.
--
-- A delayed copy is harmless: the id belongs to one process, and this process claims nothing after this statement.
with released as (
    update {schema}.channels set owner = null, released = clock_timestamp() where owner = $1
)
delete from {schema}.instances where id = $1
