//! Environments of the sinks that write to this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::{Environment, fails, fails_with, mkfifo, works};
use crate::support::Setup;

/// File sinks.
pub(super) fn files<'a>() -> Vec<Environment<'a>> {
    let content = |setup: &Setup, content: &str| fs::write(setup.path("events.jsonl"), content).unwrap();
    let at = |setup: Setup, path: &str| {
        let path = setup.path(path).display().to_string();
        setup.with("sinks.file.path", path)
    };
    vec![
        works("a new file", |setup| setup),
        works("an empty file", move |setup| {
            content(&setup, "");
            setup
        }),
        works("a file whose last line is torn", move |setup| {
            content(&setup, "{\"channel\":");
            setup
        }),
        works("a new file with a mode", |setup| setup.with("sinks.file.mode", "0600")),
        works("a symbolic link to a missing file", |setup| {
            symlink(setup.path("elsewhere.jsonl"), setup.path("events.jsonl")).unwrap();
            setup
        }),
        fails("a symbolic link to a file in a missing directory", "no file can be created in", |setup| {
            symlink(setup.path("missing/elsewhere.jsonl"), setup.path("events.jsonl")).unwrap();
            setup
        }),
        fails("a symbolic link to itself", "sink file", |setup| {
            symlink(setup.path("events.jsonl"), setup.path("events.jsonl")).unwrap();
            setup
        }),
        fails("a file of another program", "its content is not lines of JSON", move |setup| {
            content(&setup, "hello\n");
            setup
        }),
        fails("a directory instead of a file", "not a regular file but a directory", |setup| {
            fs::create_dir(setup.path("events.jsonl")).unwrap();
            setup
        }),
        fails("a named pipe instead of a file", "not a regular file but a pipe", |setup| {
            mkfifo(&setup.path("events.jsonl"));
            setup
        }),
        fails_with("a socket instead of a file", "not a regular file but a pipe, a socket", |setup| {
            let listener = UnixListener::bind(setup.path("events.jsonl")).unwrap();
            (setup, listener)
        }),
        fails("a file in a missing directory", "no file can be created in", move |setup| at(setup, "missing/file")),
        fails("a file below a file", "sink file", move |setup| {
            fs::write(setup.path("a-file"), "").unwrap();
            at(setup, "a-file/events.jsonl")
        }),
    ]
}

/// The sink is a database, which these statements have prepared.
pub(super) fn database(setup: Setup, statements: &str) -> Setup {
    let path = setup.path("events.db");
    if !statements.is_empty() {
        rusqlite::Connection::open(&path).unwrap().execute_batch(statements).unwrap();
    }
    setup.with("sinks.file.type", "sqlite").with("sinks.file.path", path.display().to_string())
}

/// SQLite sinks.
pub(super) fn databases<'a>() -> Vec<Environment<'a>> {
    vec![
        works("a new database", |setup| database(setup, "")),
        works("a new database with a search", |setup| database(setup, "").with("sinks.file.search", "trigrams")),
        works("an empty database", |setup| {
            fs::write(setup.path("events.db"), "").unwrap();
            database(setup, "")
        }),
        works("a database with another table", |setup| database(setup, "create table other (a)")),
        works("a database in write-ahead mode", |setup| {
            database(setup, "pragma journal_mode = wal; create table other (a)")
        }),
        fails("a table with a reserved name", "sqlite_", |setup| {
            database(setup, "").with("sinks.file.table", "sqlite_events")
        }),
        fails("a database in memory", ":memory:", |setup| database(setup, "").with("sinks.file.path", ":memory:")),
        fails("a view instead of the table", "sink file", |setup| {
            let columns = "1 as channel_id, 1 as event_offset, 1 as channel, 1 as event_id, 1 as type, 1 as name, 1 as source, \
                           1 as service, 1 as network, 1 as time, 1 as received, 1 as delivered, 1 as status, \
                           1 as status_reason, 1 as watcher_id, 1 as operation_id, 1 as wallet_operation_id, 1 as wallet_id, \
                           1 as query_id, 1 as verification, 1 as digest, 1 as workflow_id, 1 as decoded, 1 as record, \
                           1 as proof";
            database(setup, &format!("create view events as select {columns}"))
        }),
        fails("a table of another program", "has no column channel_id", |setup| {
            database(setup, "create table events (a int)")
        }),
        fails("an index of another table has the name", "events_time", |setup| {
            database(setup, "create table other (a); create index events_time on other (a)")
        }),
        fails("a view instead of the positions", "events_progress", |setup| {
            database(setup, "create view events_progress as select 1 as channel_id")
        }),
        fails("a table of positions of another program", "events_progress", |setup| {
            database(setup, "create table events_progress (channel_id, sink, through)")
        }),
        fails("a view instead of the search", "events_search", |setup| {
            database(setup, "create view events_search as select 1 as text").with("sinks.file.search", "words")
        }),
        fails("a file that is not a database", "not an SQLite database", |setup| {
            fs::write(setup.path("events.db"), "x".repeat(4096)).unwrap();
            database(setup, "")
        }),
        fails("a directory instead of a database", "is a directory", |setup| {
            fs::create_dir(setup.path("events.db")).unwrap();
            database(setup, "")
        }),
        fails("a named pipe instead of a database", "is a pipe", |setup| {
            mkfifo(&setup.path("events.db"));
            database(setup, "")
        }),
        fails("a database in a missing directory", "create its directory", |setup| {
            let path = setup.path("missing/events.db").display().to_string();
            database(setup, "").with("sinks.file.path", path)
        }),
        fails("a log without its database", "has rows of another file", |setup| {
            fs::write(setup.path("events.db-wal"), "rows").unwrap();
            database(setup, "")
        }),
    ]
}
