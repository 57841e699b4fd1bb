-- Ends a request that is answered, or that will not be: its instance is dead, or it is not waited for any longer ($2).
delete from {schema}.requests r
where r.id = $1 and ($2 or r.answered is not null or not exists (
    select from {schema}.instances i where i.id = r.instance and i.heartbeat + i.lease > clock_timestamp()
))
returning r.taken is not null, r.status, r.answer
