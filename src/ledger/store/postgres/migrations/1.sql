-- A process that runs. Others take it for dead when its lease is over, by this server's clock.
create table {schema}.instances (
    id uuid primary key,
    name text not null,
    started timestamptz not null default clock_timestamp(),
    heartbeat timestamptz not null,
    lease interval not null,
    -- The channels that it configures, and a digest of them: others read the list only where the digest is new to them.
    configuration bytea not null,
    channels uuid[] not null
);
-- Who owns a channel. A commit changes this row, and only where owner and epoch are still the writer's.
create table {schema}.channels (
    channel_id uuid primary key,
    owner uuid,
    epoch bigint not null default 0,
    -- Grows with each commit.
    version bigint not null default 0,
    -- Since when it has had no owner.
    released timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
-- What is remembered of the channels: JSON as UTF-8, bodies of events, and packed proofs.
create table {schema}.entries (
    channel_id uuid not null,
    kind text not null,
    key bytea not null,
    value bytea not null,
    primary key (channel_id, kind, key)
) with (fillfactor = 70);
