-- The live instances. The third column identifies the published configuration, and the fourth is in microseconds.
select id, name, configuration || coalesce(settings_digest, ''), (extract(epoch from started) * 1000000)::bigint
from {schema}.instances
where heartbeat + lease > clock_timestamp()
