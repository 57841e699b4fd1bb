//! The environments of the state in PostgreSQL.

use super::{Environment, new, with_tables};

/// The rights to the tables of the state that another role owns.
macro_rules! rights {
    ($($more:tt)*) => {
        concat!(
            "grant usage on schema channeld to {role};",
            "grant select, insert, update, delete on all tables in schema channeld to {role};",
            $($more)*
        )
    };
}

/// Undoes the last migration.
const OLDER: &str = "grant usage, create on schema channeld to {role}; \
                     alter table channeld.instances drop column settings, drop column settings_digest; \
                     delete from channeld.migrations where number = 5; \
                     grant select, insert, update, delete on all tables in schema channeld to {role}";

const OLDER_OF_SUPERUSER: &str = "alter role {role} superuser; \
                                  alter table channeld.instances drop column settings, drop column settings_digest; \
                                  delete from channeld.migrations where number = 5";

/// The check must find each missing right, without a list of tables that somebody keeps up to date.
macro_rules! without {
    ($right:literal, $table:literal) => {
        with_tables(
            concat!("no right to ", $right, " ", $table),
            rights!("revoke ", $right, " on channeld.", $table, " from {role}"),
            false,
            "grant select, insert, update, delete on all tables in schema \"channeld\"",
        )
    };
}

pub(super) const ENVIRONMENTS: &[Environment] = &[
    new("the role may create the schema", "grant create on database {db} to {role}", true, "will be created"),
    new("the role may create nothing", "", false, "may not create a schema"),
    new("a schema of another role", "create schema channeld", false, "may not use schema channeld"),
    new(
        "a schema that the role may only use",
        "create schema channeld; grant usage on schema channeld to {role}",
        false,
        "may not create tables in schema channeld",
    ),
    new(
        "a schema in which the role may create tables",
        "create schema channeld; grant usage, create on schema channeld to {role}",
        true,
        "5 of 5 migrations will be applied",
    ),
    new(
        "transactions are read-only",
        "grant create on database {db} to {role}; alter role {role} set default_transaction_read_only = on",
        false,
        "it accepts no writes",
    ),
    new(
        "too few connections",
        "grant create on database {db} to {role}; alter role {role} connection limit 2",
        false,
        "allows 2 connections, and an instance needs 5",
    ),
    new("the role may not log in", "alter role {role} nologin", false, "let role"),
    new(
        "an empty search_path",
        "grant create on database {db} to {role}; alter role {role} set search_path = ''",
        true,
        "will be created",
    ),
    with_tables("all rights to the tables", rights!(), true, "is up to date"),
    with_tables(
        "no rights to the tables",
        "grant usage on schema channeld to {role}",
        false,
        "may not read the tables",
    ),
    without!("select", "migrations"),
    without!("select", "state"),
    without!("select", "instances"),
    without!("select", "channels"),
    without!("select", "entries"),
    without!("select", "requests"),
    without!("select", "proofs"),
    without!("insert", "instances"),
    without!("update", "instances"),
    without!("delete", "instances"),
    without!("insert", "channels"),
    without!("update", "channels"),
    without!("insert", "entries"),
    without!("delete", "entries"),
    without!("update", "requests"),
    without!("insert", "proofs"),
    without!("update", "proofs"),
    without!("delete", "proofs"),
    with_tables("an older schema", OLDER_OF_SUPERUSER, true, "1 of 5 migrations will be applied"),
    with_tables("an older schema of another role", OLDER, false, "must be owner"),
    with_tables(
        "a newer schema",
        rights!("insert into channeld.migrations (number) values (99)"),
        false,
        "has 99 migrations",
    ),
    with_tables("an incomplete copy", rights!("update channeld.state set incomplete = true"), false, "incomplete copy"),
    with_tables("a state without an id", rights!("delete from channeld.state"), false, "the state has no id"),
    with_tables(
        "row-level security of the proofs",
        rights!("alter table channeld.proofs enable row level security"),
        false,
        "row-level security",
    ),
    with_tables(
        "row-level security of the channels",
        rights!("alter table channeld.channels enable row level security"),
        false,
        "row-level security",
    ),
    with_tables(
        "a trigger that refuses entries",
        rights!(
            "create function mine() returns trigger language plpgsql as $$begin raise 'not today'; end$$;",
            "create trigger mine before insert on channeld.entries for each row execute function mine()"
        ),
        false,
        "not today",
    ),
    with_tables("a missing column", rights!("alter table channeld.channels drop column released"), false, "released"),
    with_tables(
        "asynchronous commits",
        rights!("alter role {role} set synchronous_commit = off"),
        true,
        "synchronous_commit is off",
    ),
    with_tables("an unlogged table", rights!("alter table channeld.entries set unlogged"), true, "entries is unlogged"),
];
