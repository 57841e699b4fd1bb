-- The instances that have not left. The third column identifies the published configuration, the fourth is in microseconds, and
-- the fifth says whether the instance lives.
select id, name, configuration || coalesce(settings_digest, ''), (extract(epoch from started) * 1000000)::bigint,
    heartbeat + lease > clock_timestamp()
from {schema}.instances
