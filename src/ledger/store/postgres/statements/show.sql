-- Records the proofs that a channel shows. Each proof is recorded once, for the channel that showed it first. Returns a row
-- for each proof that another channel showed first. The rows are written in the order of their digests, so that two channels
-- that show the same proofs do not wait for each other.
--
-- The statement returns when the rows are on disk, because the events are delivered next. A later commit does not prove that
-- these rows are durable: the server may have crashed in between, and a commit that is sent again to the recovered server
-- succeeds without them.
--
-- A delayed copy changes nothing while the proofs are recorded. If they were removed in the meantime, it records them for a
-- channel that did show them.
with shown as (
    insert into {schema}.proofs as known (digest, channel_id, event_offset)
    select given.digest, $1, given.event_offset
    from unnest($2::uuid[], $3::bigint[]) as given (digest, event_offset)
    order by given.digest
    -- The update has no effect except that the row is returned, even if another transaction has written it in the meantime.
    on conflict (digest) do update set digest = known.digest where known.channel_id <> excluded.channel_id
    returning known.digest, known.channel_id, known.event_offset
)
select digest, channel_id, event_offset from shown where channel_id <> $1
