-- Sends a request to an instance, and removes requests that are older than a minute. The instance takes the request only
-- after the sender has read its number and has looked for the answer (`look.sql`).
--
-- A request that a delayed copy inserts is therefore never taken. This matters, because an operator who got no answer may
-- have requested something else in the meantime.
with forgotten as (
    delete from {schema}.requests where asked < clock_timestamp() - interval '1 minute'
)
insert into {schema}.requests (instance, method, path, body, wanted) values ($1, $2, $3, $4, false)
returning id
