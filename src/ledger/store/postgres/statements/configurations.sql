-- The published configurations of these instances. The second column identifies the configuration.
select name, configuration || coalesce(settings_digest, ''), channels, settings
from {schema}.instances
where id = any($1)
