-- What is remembered of a channel. Of bodies, the size.
select kind, key, case when kind = any($2) then null else value end as value, length(value)::bigint as size
from {schema}.entries
where channel_id = $1
