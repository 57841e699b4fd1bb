-- Returns the state of a request, and whether its instance is dead. The first execution marks the request as wanted: from
-- then on it may be taken.
--
-- The answer stays in the table, so that it can be read again if the result of this statement is lost. The sender withdraws
-- the request when it has the answer or stops waiting. A delayed copy finds nothing after that. If the withdrawal was lost
-- too, the sender has reported that the outcome is unknown. The request is not taken later than a minute after it was sent.
with wanted as (
    update {schema}.requests set wanted = true where id = $1 and not wanted
)
select r.taken is not null, r.status, r.answer, not exists (
    select from {schema}.instances i where i.id = r.instance and i.heartbeat + i.lease > clock_timestamp()
)
from {schema}.requests r where r.id = $1
