-- Releases the channels that this instance still owns under these epochs.
--
-- A delayed copy changes nothing: an epoch is never used again, and a released channel has no owner.
update {schema}.channels c
set owner = null, released = clock_timestamp()
from unnest($2::uuid[], $3::bigint[]) as given (channel_id, epoch)
where c.channel_id = given.channel_id and c.owner = $1 and c.epoch = given.epoch
