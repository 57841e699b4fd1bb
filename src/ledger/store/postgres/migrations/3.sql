-- The channel that showed a proof first, for all proofs that were shown recently in any channel.
create table {schema}.proofs (
    -- The first 16 bytes of the signed digest.
    digest uuid primary key,
    channel_id uuid not null,
    event_offset bigint not null,
    -- A larger number is newer. The oldest proofs are removed.
    number bigint generated always as identity
);
create index on {schema}.proofs (number);
-- A JSON list of the channel's quarantined events whose proofs other channels showed first. These other channels are not
-- ready either.
alter table {schema}.channels add held_back bytea;
