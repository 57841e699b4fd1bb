//! The sinks that write tables.

use super::*;
use ::sink::{PostgresSettings, Search, SqliteSettings};

const POSTGRES: &str =
    "[sinks.warehouse]\ntype = \"postgres\"\nurl = \"postgresql://channeld:pass@db.internal/warehouse\"\n";
const SQLITE: &str = "[sinks.local]\ntype = \"sqlite\"\npath = \"/var/lib/channeld/events.db\"\n";

#[test]
fn a_table_needs_only_its_location() {
    let config = load(&format!("{GOOD}{POSTGRES}{SQLITE}"), &[]).expect("both");
    let SinkSettings::Postgres(settings) = &config.sinks["warehouse"].settings else { panic!("another type") };
    let PostgresSettings { server, schema, table, create, operations, search, notify, .. } = &**settings;
    assert_eq!((&*server.place(), &**schema, &**table), ("warehouse on db.internal", "public", "events"));
    assert_eq!((*create, *operations, *search, notify), (true, false, Search::None, &None));
    let SinkSettings::Sqlite(settings) = &config.sinks["local"].settings else { panic!("another type") };
    let SqliteSettings { table, operations, search, keep_for, keep_size, .. } = settings;
    assert_eq!((&**table, *operations, *search, *keep_for, *keep_size), ("events", false, Search::None, None, None));
    for sink in config.sinks.values() {
        let shown = format!("{:?} {:?}", sink.shown(), sink.settings);
        assert!(!shown.contains("pass@") && !shown.contains(":pass"), "{shown}");
    }
}

#[test]
fn invalid_table_settings_are_reported_with_their_key() {
    for (change, key) in [
        (("url = \"postgresql://channeld:pass@db.internal/warehouse\"\n", ""), "sinks.warehouse.url"),
        (("postgresql://channeld:pass@db.internal/warehouse", "https://db"), "sinks.warehouse.url"),
        (("type = \"postgres\"", "type = \"postgres\"\ntable = \"Events\""), "sinks.warehouse.table"),
        (("type = \"postgres\"", "type = \"postgres\"\nschema = \"a.b\""), "sinks.warehouse.schema"),
        (("type = \"postgres\"", "type = \"postgres\"\nnotify = \"a b\""), "sinks.warehouse.notify"),
        (("type = \"postgres\"", "type = \"postgres\"\nsearch = \"all\""), "sinks.warehouse.search"),
        (("type = \"postgres\"", "type = \"postgres\"\nformat = \"text\""), "sinks.warehouse.format"),
        (("type = \"postgres\"", "type = \"postgres\"\nretry_wait = \"1s\""), "sinks.warehouse.retry_wait"),
        (("type = \"sqlite\"", "type = \"sqlite\"\nkeep_size = \"10\""), "sinks.local.keep_size"),
        (("type = \"sqlite\"", "type = \"sqlite\"\ncreate = false"), "sinks.local.create"),
        (("type = \"sqlite\"", "type = \"sqlite\"\ntable = \"sqlite_events\""), "sinks.local.table"),
        (("path = \"/var/lib/channeld/events.db\"\n", ""), "sinks.local.path"),
        (("path = \"/var/lib/channeld/events.db\"\n", "path = \":memory:\"\n"), "sinks.local.path"),
    ] {
        let text = format!("{GOOD}{POSTGRES}{SQLITE}").replace(change.0, change.1);
        let error = load(&text, &[]).expect_err(key);
        assert_eq!(keys_of(&error), [key]);
    }
}

#[test]
fn options_that_the_client_does_not_support_are_refused_with_the_reason() {
    for (option, words) in [
        ("target_session_attrs=primary", "write read-write"),
        ("gssencmode=disable", "use sslmode"),
        ("passfile=/home/me/.pgpass", "url_file"),
        ("service=main", "service files are not read"),
        ("require_auth=scram-sha-256", "must not have require_auth, which is not supported"),
        // It may be a part of a password.
        ("sesame=1", "must be the address of a PostgreSQL database"),
    ] {
        let text = format!("{GOOD}{POSTGRES}").replace("internal/warehouse", &format!("internal/warehouse?{option}"));
        let error = load(&text, &[]).expect_err(option);
        let said = error.problems[0].to_string();
        assert!(keys_of(&error) == ["sinks.warehouse.url"] && said.contains(words), "{option}: {said}");
        assert!(!said.contains("sesame"), "{said}");
    }
    let read_write = format!("{GOOD}{POSTGRES}").replace("internal/w", "internal,other/w");
    load(&read_write.replace("warehouse\"", "warehouse?target_session_attrs=read-write\""), &[]).expect("read-write");
}

#[test]
fn sinks_cannot_share_a_database_file() {
    let again = SQLITE.replace("sinks.local", "sinks.second");
    let error = load(&format!("{GOOD}{SQLITE}{again}"), &[]).expect_err("the same file");
    assert_eq!(keys_of(&error), ["sinks.second.path"]);
    let file = "[sinks.other]\ntype = \"file\"\npath = \"/var/lib/channeld/events.db\"\n";
    let error = load(&format!("{GOOD}{SQLITE}{file}"), &[]).expect_err("the same file");
    assert_eq!(keys_of(&error), ["sinks.other.path"]);
    let state = "[state]\nbackend = \"postgres\"\nurl = \"postgresql://channeld@db.internal/channeld\"\n";
    let meant = GOOD.replace("type = \"stdout\"", "type = \"stdout\"\nper_instance = true");
    let error = load(&format!("{meant}{POSTGRES}{SQLITE}{state}"), &[]).expect_err("a file is of one machine");
    assert_eq!(keys_of(&error), ["sinks.local.type"]);
}
