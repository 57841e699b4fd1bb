-- All entries of a channel. For bodies ($2), only the size is returned.
select kind, key, case when kind = any($2) then null else value end as value, length(value)::bigint as size
from {schema}.entries
where channel_id = $1
