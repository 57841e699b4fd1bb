-- Asks an instance. What was asked a minute ago is not waited for any more.
with forgotten as (
    delete from {schema}.requests where asked < clock_timestamp() - interval '1 minute'
)
insert into {schema}.requests (instance, method, path, body) values ($1, $2, $3, $4)
returning id
