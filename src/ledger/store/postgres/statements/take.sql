-- Takes the requests to an instance, except the requests that it has received before ($2). Requests that are older than a
-- minute are not taken, because their senders no longer wait.
--
-- A delayed copy, or a statement whose result is lost, takes requests that the instance does not receive. The next statement
-- returns them again. The instance executes each request once, because it knows which requests it has received.
update {schema}.requests set taken = clock_timestamp()
where id in (
    select id from {schema}.requests
    where instance = $1 and wanted and answered is null and not id = any($2)
        and asked > clock_timestamp() - interval '1 minute'
    order by id limit 16
    for update skip locked
)
returning id, method, path, body
