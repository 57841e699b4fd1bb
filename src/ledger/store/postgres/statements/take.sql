-- What an instance is asked, each once. What was asked a minute ago is not waited for any more.
update {schema}.requests set taken = clock_timestamp()
where id in (
    select id from {schema}.requests
    where instance = $1 and taken is null and asked > clock_timestamp() - interval '1 minute'
    order by id limit 16
    for update skip locked
)
returning id, method, path, body
