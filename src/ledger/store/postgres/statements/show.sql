-- A channel shows proofs. A proof is noted once, for the channel that showed it first; a row is returned for each that another
-- channel showed before. They are written in the order of their digests, so that two channels that show the same proofs do not
-- wait for each other.
--
-- The statement waits for the disk, because the events are delivered after it. A later commit does not prove that these rows
-- are durable: the server may have crashed in between, and a commit that is sent again to the server that has recovered says
-- nothing about them.
--
-- A late copy changes nothing while the proofs are remembered. After that it notes for this channel what it did show.
with shown as (
    insert into {schema}.proofs as known (digest, channel_id, event_offset)
    select given.digest, $1, given.event_offset
    from unnest($2::uuid[], $3::bigint[]) as given (digest, event_offset)
    order by given.digest
    -- A row that another transaction has written meanwhile is returned too: it is updated, although the snapshot hides it.
    on conflict (digest) do update set digest = known.digest where known.channel_id <> excluded.channel_id
    returning known.digest, known.channel_id, known.event_offset
)
select digest, channel_id, event_offset from shown where channel_id <> $1
