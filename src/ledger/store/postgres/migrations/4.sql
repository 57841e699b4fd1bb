-- Properties of the whole state, in a single row.
create table {schema}.state (
    is_only bool primary key default true check (is_only),
    -- Identifies this state. An instance remembers the id of the state that it uses, and works with no other state.
    id uuid not null default gen_random_uuid(),
    -- Whether a copy from another backend was started and not completed.
    incomplete bool not null default false,
    -- How many times a copy was started or completed.
    changes bigint not null default 0,
    -- All proofs up to this number have been examined for removal: see `forget.sql`.
    examined bigint not null default 0
);
insert into {schema}.state default values;
-- Finds the newest proofs of a channel.
create index on {schema}.proofs (channel_id, number);
-- Whether the sender has read the number of its request. Until then, the request is not taken.
alter table {schema}.requests add wanted bool not null default true;
