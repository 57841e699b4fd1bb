-- How a request stands, and whether its instance is dead. From the first look on, it is wanted and may be taken.
--
-- The answer stays in place, so that it can be read again if this statement's answer is lost. The sender withdraws the request
-- when it has the answer, or stops waiting. A late copy finds nothing after that. If the withdrawal did not arrive either, the
-- sender was told that the fate of the request is unknown, and it is not taken later than a minute after it was asked.
with wanted as (
    update {schema}.requests set wanted = true where id = $1 and not wanted
)
select r.taken is not null, r.status, r.answer, not exists (
    select from {schema}.instances i where i.id = r.instance and i.heartbeat + i.lease > clock_timestamp()
)
from {schema}.requests r where r.id = $1
