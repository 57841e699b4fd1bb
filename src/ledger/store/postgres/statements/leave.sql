-- This instance ends. A late copy changes nothing that is still needed: the id belongs to one process, which claims nothing
-- after this.
with released as (
    update {schema}.channels set owner = null, released = clock_timestamp() where owner = $1
)
delete from {schema}.instances where id = $1
