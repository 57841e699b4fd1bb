-- The requests to an instance. Requests that it has received before ($2) are left out. Requests that were taken by a
-- statement whose answer was lost, or by a late copy of one, are returned again: the instance knows which it has received, and
-- carries out each of them once. A request is not waited for after a minute.
update {schema}.requests set taken = clock_timestamp()
where id in (
    select id from {schema}.requests
    where instance = $1 and wanted and answered is null and not id = any($2)
        and asked > clock_timestamp() - interval '1 minute'
    order by id limit 16
    for update skip locked
)
returning id, method, path, body
