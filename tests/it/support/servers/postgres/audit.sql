-- Records the changes that instances make to their channels. The changes of a channel are recorded in order, because each change
-- locks the row of the channel.
create schema audit;
create table audit.channels (
    number bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    channel uuid not null,
    owner uuid,
    epoch bigint not null,
    version bigint not null,
    -- Whether the change is a commit. Other changes take or release a lease.
    is_commit bool not null
);
create table audit.cursors (
    number bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    channel uuid not null,
    sink text not null,
    through bigint,
    owner uuid,
    epoch bigint not null,
    version bigint not null
);
create function audit.note_channel() returns trigger language plpgsql as $$
begin
    insert into audit.channels (channel, owner, epoch, version, is_commit)
    values (new.channel_id, new.owner, new.epoch, new.version, tg_op = 'UPDATE' and new.version <> old.version);
    return null;
end $$;
create function audit.note_cursor() returns trigger language plpgsql as $$
begin
    insert into audit.cursors (channel, sink, through, owner, epoch, version)
    select channel_id, convert_from(new.key, 'UTF8'), nullif(convert_from(new.value, 'UTF8'), 'null')::bigint,
        owner, epoch, version
    from channeld.channels where channel_id = new.channel_id;
    return null;
end $$;
create trigger audit after insert or update on channeld.channels
    for each row execute function audit.note_channel();
create trigger audit after insert or update on channeld.entries
    for each row when (new.kind = 'cursors') execute function audit.note_cursor();
-- The changes that are not allowed.
create view audit.breaches as
select 'the cursor went back: ' || told.* as breach
from (
    select c.*, max(through) over (
        partition by channel, sink order by number rows between unbounded preceding and 1 preceding
    ) as highest
    from audit.cursors c
) told where coalesce(through, -1) < highest
union all
select 'an epoch recorded after a later one: ' || told.* from (
    select c.*, max(epoch) over (
        partition by channel order by number rows between unbounded preceding and 1 preceding
    ) as latest
    from audit.channels c where is_commit
) told where epoch < latest
union all
select 'a channel had several recording owners in one epoch, or none: ' || told.* from (
    select channel, epoch, array_agg(distinct owner) as owners
    from audit.channels where is_commit
    group by channel, epoch
) told where array_length(owners, 1) > 1 or owners[1] is null;
