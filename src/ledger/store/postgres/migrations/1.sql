-- The running instances. The others consider an instance dead when its lease has ended on this server's clock.
create table {schema}.instances (
    id uuid primary key,
    name text not null,
    started timestamptz not null default clock_timestamp(),
    heartbeat timestamptz not null,
    lease interval not null,
    -- A digest of the configured channels, and their list. Other instances read the list only if they do not know the digest.
    configuration bytea not null,
    channels uuid[] not null
);
-- The owner of each channel. A commit changes the row, and only if owner and epoch are still the writer's.
create table {schema}.channels (
    channel_id uuid primary key,
    owner uuid,
    epoch bigint not null default 0,
    -- Grows with each commit.
    version bigint not null default 0,
    -- When the last owner released the channel, or when the row was created.
    released timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
-- The entries of the channels' ledgers: JSON as UTF-8, bodies of events, and packed proofs.
create table {schema}.entries (
    channel_id uuid not null,
    kind text not null,
    key bytea not null,
    value bytea not null,
    primary key (channel_id, kind, key)
) with (fillfactor = 70);
