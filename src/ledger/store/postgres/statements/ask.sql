-- Asks an instance. The request is not carried out before its sender has read its number and looks for the answer
-- (`look.sql`). A late copy is therefore never carried out: an operator who was told that there was no answer may have asked
-- for something else meanwhile. Requests are removed after a minute.
with forgotten as (
    delete from {schema}.requests where asked < clock_timestamp() - interval '1 minute'
)
insert into {schema}.requests (instance, method, path, body, wanted) values ($1, $2, $3, $4, false)
returning id
