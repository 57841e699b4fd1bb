-- What is true of the state as a whole: one row.
create table {schema}.state (
    is_only bool primary key default true check (is_only),
    -- Names this state. An instance remembers the id of the state that it uses, and does not take another one for it.
    id uuid not null default gen_random_uuid(),
    -- Whether a copy from another backend was begun and not ended.
    incomplete bool not null default false,
    -- How many times a copy was begun or ended.
    changes bigint not null default 0,
    -- The proofs up to this number were examined when they were no longer among the newest.
    examined bigint not null default 0
);
insert into {schema}.state default values;
-- The newest proofs of a channel.
create index on {schema}.proofs (channel_id, number);
-- Whether the sender has read the number of its request: it is not carried out before.
alter table {schema}.requests add wanted bool not null default true;
