-- The channel that showed a proof first, for the proofs that any channel has shown lately.
create table {schema}.proofs (
    -- The first 16 bytes of what was signed.
    digest uuid primary key,
    channel_id uuid not null,
    event_offset bigint not null,
    -- Grows: the oldest are forgotten.
    number bigint generated always as identity
);
create index on {schema}.proofs (number);
-- What of the channel's quarantine was shown in other channels before, as JSON: those are not ready either.
alter table {schema}.channels add held_back bytea;
