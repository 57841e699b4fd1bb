-- A channel shows proofs. A proof is noted once, for the channel that showed it first; a row is given for each that another
-- channel did. In the order of their digests, so that two channels that show the same do not wait for each other. The disk is
-- not waited for: the commit that follows a delivery is, and what was written before it is safe with it.
with quick as materialized (
    select set_config('synchronous_commit', 'off', true)
), shown as (
    insert into {schema}.proofs as known (digest, channel_id, event_offset)
    select given.digest, $1, given.event_offset
    from quick, unnest($2::uuid[], $3::bigint[]) as given (digest, event_offset)
    order by given.digest
    -- A row that another transaction has written meanwhile is given too: not even this statement's snapshot hides it.
    on conflict (digest) do update set digest = known.digest where known.channel_id <> excluded.channel_id
    returning known.digest, known.channel_id, known.event_offset
)
select digest, channel_id, event_offset from shown where channel_id <> $1
