//! The environments of a sink. The role is an ordinary one, and `public` belongs to the owner of the database.

use super::{Environment, new, with_tables};

/// The rights that the sink needs if the tables exist.
macro_rules! rights {
    ($($more:tt)*) => {
        concat!(
            "grant select, insert on events to {role}; grant select, insert, update on events_progress to {role};",
            $($more)*
        )
    };
}

/// The role owns the tables, and may create more.
macro_rules! owner {
    ($($more:tt)*) => {
        concat!(
            "alter database {db} owner to {role}; alter table events owner to {role};",
            "alter table events_progress owner to {role};",
            $($more)*
        )
    };
}

/// A trigger of the table that executes these statements for each row.
macro_rules! trigger {
    ($when:literal, $body:literal) => {
        concat!(
            "create function mine() returns trigger language plpgsql as $$begin ",
            $body,
            " return new; end$$;",
            "create trigger mine ",
            $when,
            " insert on events for each row execute function mine();"
        )
    };
}

#[expect(clippy::needless_pass_by_value, reason = "a constant is built from it")]
const fn set(settings: &'static [(&'static str, &'static str)], environment: Environment) -> Environment {
    Environment { settings, ..environment }
}

const IN_SCHEMA: &[(&str, &str)] = &[("sinks.warehouse.schema", "\"warehouse\"")];
const TRIGRAMS: &[(&str, &str)] = &[("sinks.warehouse.search", "\"trigrams\"")];
const WORDS: &[(&str, &str)] = &[("sinks.warehouse.search", "\"words\"")];
const NOTIFY: &[(&str, &str)] = &[("sinks.warehouse.notify", "\"channeld_events\"")];
const OPERATIONS: &[(&str, &str)] = &[("sinks.warehouse.operations", "true")];
const NO_CREATE: &[(&str, &str)] = &[("sinks.warehouse.create", "false")];

pub(super) const ENVIRONMENTS: &[Environment] = &[
    new("an empty database of the role", "alter database {db} owner to {role}", true, "will be created"),
    new("the role may create tables", "grant create on schema public to {role}", true, "will be created"),
    new("the role may create nothing", "", false, "may not create tables in schema public"),
    set(IN_SCHEMA, new("it may create the schema", "grant create on database {db} to {role}", true, "will be created")),
    set(IN_SCHEMA, new("it may not create the schema", "", false, "may not create tables")),
    set(IN_SCHEMA, new("it may not use the schema", "create schema warehouse", false, "may not use schema warehouse")),
    set(
        IN_SCHEMA,
        new(
            "it may only use the schema",
            "create schema warehouse; grant usage on schema warehouse to {role}",
            false,
            "may not create tables in schema warehouse",
        ),
    ),
    set(NO_CREATE, new("create is false", "alter database {db} owner to {role}", false, "create is false")),
    set(NO_CREATE, with_tables("create is false, and the tables exist", rights!(), true, "is there")),
    set(NOTIFY, new("listeners are notified", "alter database {db} owner to {role}", true, "will be created")),
    set(OPERATIONS, new("operations", "alter database {db} owner to {role}", true, "with public.events_operations")),
    set(OPERATIONS, with_tables("the table of operations is missing", rights!(), false, "may not create tables")),
    set(
        OPERATIONS,
        with_tables(
            "a view instead of the operations",
            rights!(
                "create view events_operations as select 1 as channel_id; grant all on events_operations to {role}"
            ),
            false,
            "public.events_operations is a view",
        ),
    ),
    set(WORDS, new("words are searched", "alter database {db} owner to {role}", true, "will be created")),
    set(
        TRIGRAMS,
        new("the role may create pg_trgm", "alter database {db} owner to {role}; -- pg_trgm", true, "created"),
    ),
    set(
        TRIGRAMS,
        new("the role may not create pg_trgm", "grant create on schema public to {role}; -- pg_trgm", false, "pg_trgm"),
    ),
    set(
        TRIGRAMS,
        new(
            "pg_trgm is outside search_path",
            "alter database {db} owner to {role}; create schema ext; create extension pg_trgm schema ext; \
             grant usage on schema ext to {role}",
            true,
            "will be created",
        ),
    ),
    set(
        TRIGRAMS,
        new(
            "the role may not use the schema of pg_trgm",
            "alter database {db} owner to {role}; create schema ext; create extension pg_trgm schema ext",
            false,
            "permission denied for schema ext",
        ),
    ),
    new(
        "an empty search_path",
        "alter database {db} owner to {role}; alter role {role} set search_path = ''",
        true,
        "will be created",
    ),
    new(
        "transactions are read-only",
        "alter database {db} owner to {role}; alter role {role} set default_transaction_read_only = on",
        false,
        "it accepts no writes",
    ),
    new("the role may not log in", "alter role {role} nologin", false, "let role"),
    new("the role may not connect", "revoke connect on database {db} from public", false, "grant connect"),
    new(
        "a table of another program",
        "create table events (id int); grant all on events to {role}",
        false,
        "no column",
    ),
    new("a view", "alter database {db} owner to {role}; create view events as select 1 as a", false, "is a view"),
    with_tables("the documented rights", rights!(), true, "is there"),
    with_tables("no right to the tables", "", false, "may not write to table"),
    with_tables("no right to insert", rights!("revoke insert on events from {role}"), false, "may not write to table"),
    with_tables("no right to select", rights!("revoke select on events from {role}"), false, "may not write to table"),
    with_tables(
        "no right to move a position",
        rights!("revoke update on events_progress from {role}"),
        false,
        "may not write to table",
    ),
    with_tables(
        "a view of the table",
        owner!(
            "alter table events rename to mine; create view events as select * from mine; grant all on events to {role}"
        ),
        false,
        "public.events is a view, not a table",
    ),
    with_tables(
        "a materialized view of the table",
        owner!("alter table events rename to mine; create materialized view events as select * from mine"),
        false,
        "public.events is a materialized view",
    ),
    with_tables(
        "a view of the positions",
        rights!(
            "alter table events_progress rename to mine; create view events_progress as select * from mine;",
            "grant all on events_progress, mine to {role}"
        ),
        false,
        "public.events_progress is a view",
    ),
    with_tables("a missing column", owner!("alter table events drop column proof"), true, "this SQL will be run"),
    with_tables(
        "the table of an older version",
        owner!("alter table events drop column confidence, drop column network_name"),
        true,
        "add column if not exists \"network_name\" text",
    ),
    with_tables(
        "a missing column in a table of another role",
        rights!("alter table events drop column proof"),
        false,
        "as its owner run: alter table",
    ),
    with_tables(
        "a table without positions",
        owner!("alter table events drop column position; alter table events_progress drop column position"),
        true,
        "add column if not exists position bigint",
    ),
    with_tables(
        "a table without positions that belongs to another role",
        rights!("alter table events drop column position; alter table events_progress drop column position"),
        false,
        "update (position) on",
    ),
    with_tables("a missing key", owner!("drop index events_identity"), true, "this SQL will be run"),
    with_tables(
        "a missing key in a table of another role",
        rights!("drop index events_identity; grant create on schema public to {role}"),
        false,
        "which belongs to another role",
    ),
    with_tables(
        "a foreign key that needs the old key",
        owner!(
            "drop index events_identity; alter table events add unique (channel_id, event_offset);",
            "create table mine (c uuid, o bigint, foreign key (c, o) references events (channel_id, event_offset))"
        ),
        false,
        "depend",
    ),
    with_tables("a column of another type", owner!("alter table events alter name type int using 0"), false, "name"),
    with_tables("a needed column of the user", owner!("alter table events add mine int not null"), false, "mine"),
    with_tables(
        "a column of the user with a default",
        owner!("alter table events add mine int default 1"),
        true,
        "there",
    ),
    with_tables(
        "a constraint that refuses all",
        rights!("alter table events add check (event_offset < 0)"),
        false,
        "check",
    ),
    with_tables(
        "a constraint that refuses test events",
        rights!("alter table events add check (type <> 'channeld.test' and event_offset > 0)"),
        true,
        "is there",
    ),
    with_tables("a trigger that refuses", rights!(trigger!("before", "raise 'not today';")), false, "not today"),
    with_tables(
        "a trigger that suppresses rows",
        rights!(trigger!("before", "return null;")),
        false,
        "suppresses rows without an error",
    ),
    with_tables(
        "a trigger without rights",
        rights!("create table mine (o bigint);", trigger!("after", "insert into mine values (new.event_offset);")),
        false,
        "permission denied for table mine",
    ),
    with_tables(
        "a trigger with rights",
        rights!(
            "create table mine (o bigint); grant insert on mine to {role};",
            trigger!("after", "insert into mine values (new.event_offset);")
        ),
        true,
        "is there",
    ),
    with_tables(
        "a deferred trigger that refuses",
        rights!(
            "create function mine() returns trigger language plpgsql as $$begin raise 'not today'; end$$;",
            "create constraint trigger mine after insert on events deferrable initially deferred ",
            "for each row execute function mine()"
        ),
        false,
        "not today",
    ),
    with_tables(
        "row-level security that hides all",
        rights!("alter table events enable row level security"),
        false,
        "row-level security",
    ),
    with_tables(
        "row-level security that lets the role pass",
        rights!("alter table events enable row level security; create policy mine on events using (true)"),
        true,
        "is there",
    ),
    with_tables(
        "row-level security of an owner",
        owner!("alter table events enable row level security; alter table events force row level security"),
        false,
        "row-level security",
    ),
    with_tables(
        "row-level security that lets the role only insert",
        rights!(
            "alter table events enable row level security; create policy mine on events for insert with check (true)"
        ),
        false,
        "row-level security",
    ),
    with_tables(
        "row-level security that lets the channel pass",
        rights!(
            "alter table events enable row level security;",
            "create policy mine on events using (channel = 'c0') with check (channel = 'c0')"
        ),
        true,
        "is there",
    ),
    with_tables(
        "row-level security that refuses the channel",
        rights!(
            "alter table events enable row level security;",
            "create policy mine on events using (true) with check (channel <> 'c0')"
        ),
        false,
        "row-level security",
    ),
    with_tables(
        "row-level security that hides the channel",
        rights!(
            "alter table events enable row level security;",
            "create policy mine on events using (channel <> 'c0') with check (true)"
        ),
        false,
        "row-level security",
    ),
    with_tables(
        "row-level security that keeps positions where they are",
        rights!(
            "alter table events_progress enable row level security;",
            "create policy mine on events_progress using (true);",
            "create policy never on events_progress as restrictive for update using (false)"
        ),
        false,
        "did not keep a position",
    ),
    with_tables(
        "row-level security that hides positions",
        rights!(
            "alter table events_progress enable row level security;",
            "create policy mine on events_progress for insert with check (true)"
        ),
        false,
        "row",
    ),
    with_tables(
        "row-level security of the positions",
        rights!("alter table events_progress enable row level security"),
        false,
        "row-level security",
    ),
    with_tables(
        "partitions for all channels",
        owner!(
            "create table parts (like events including defaults) partition by list (channel_id);",
            "create table parts_of_all partition of parts default; drop table events;",
            "alter table parts rename to events; alter table events owner to {role};",
            "alter table parts_of_all owner to {role}"
        ),
        true,
        "this SQL will be run",
    ),
    with_tables(
        "no partition",
        owner!(
            "create table parts (like events including defaults) partition by list (channel_id); drop table events;",
            "alter table parts rename to events; alter table events owner to {role}"
        ),
        false,
        "create a partition",
    ),
    with_tables(
        "an unlogged table",
        rights!("alter table events set unlogged"),
        true,
        "table public.events is unlogged",
    ),
    with_tables(
        "asynchronous commits",
        rights!("alter role {role} set synchronous_commit = off"),
        true,
        "synchronous_commit is off",
    ),
];
