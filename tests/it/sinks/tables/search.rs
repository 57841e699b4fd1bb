//! Full-text search, notifications, and the queries in `deploy/TABLES.md`.

use std::future::poll_fn;

use simulator::{EventSpec, Kind, Options};
use tokio_postgres::{AsyncMessage, NoTls};

use super::tables;
use crate::support::{LONGEST_WAIT, sqlite};

#[tokio::test]
async fn words_and_prefixes_are_found_in_both_databases() {
    let Some((_simulator, mut setup, tables)) = tables(Options { events: 40, ..Options::default() }).await else {
        return;
    };
    let has_trigrams =
        tables.database.psql("select count(*) from pg_available_extensions where name = 'pg_trgm'") == ["1"];
    for search in ["words", "trigrams"] {
        if search == "trigrams" && !has_trigrams {
            return crate::support::skip("the extension pg_trgm of PostgreSQL");
        }
        for sink in ["warehouse", "local"] {
            setup.set(&format!("sinks.{sink}.search"), search);
            setup.set(&format!("sinks.{sink}.table"), format!("by_{search}"));
        }
        std::fs::remove_dir_all(setup.path("state")).ok();
        let mut daemon = setup.start();
        let table = format!("by_{search}");
        let count = format!("select count(*) from {table}");
        let rows = async || tables.database.try_query(&count).await.map_or(0, |rows| rows[0].get(0));
        super::until(&mut daemon, "all rows are there", async || rows().await >= 40_i64).await;
        let sought =
            tables.database.psql(&format!("select source from {table} where source is not null limit 1")).remove(0);
        let part = &sought[5..20];
        let (in_postgres, in_sqlite) = match search {
            "words" => (format!("search @@ plainto_tsquery('simple', '{sought}')"), sought.clone()),
            _ => (format!("search like '%{part}%'"), part.to_owned()),
        };
        let found = tables.database.psql(&format!("select event_offset from {table} where {in_postgres} order by 1"));
        let expected = tables
            .database
            .psql(&format!("select event_offset from {table} where record like '%{sought}%' order by 1"));
        daemon.stop().await;
        let query = format!(
            "select event_offset from {table}_search join {table} on id = {table}_search.rowid where text match '\"{in_sqlite}\"' order by 1"
        );
        assert_eq!(sqlite(&tables.file, &query), found, "{search}");
        assert!(
            !found.is_empty() && found.iter().all(|offset| expected.contains(offset)),
            "{search}: {found:?} {expected:?}"
        );
    }
}

/// The queries in `deploy/TABLES.md` that are marked with this language.
fn queries(language: &str) -> Vec<&'static str> {
    let document = include_str!("../../../../deploy/TABLES.md");
    let blocks = document.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

#[tokio::test]
async fn the_documented_queries_work_in_both_databases() {
    let options = Options { events: 200, unsigned: 0.4, ..Options::default() };
    let Some((simulator, mut setup, tables)) = tables(options).await else { return };
    simulator.publish_one(0, EventSpec::Honest(Kind::OperationFailed));
    for sink in ["warehouse", "local"] {
        setup.set(&format!("sinks.{sink}.search"), "words");
        setup.set(&format!("sinks.{sink}.operations"), true);
    }
    let mut daemon = setup.start();
    tables.until(&mut daemon, 201).await;
    daemon.stop().await;
    let id = tables.database.psql("select event_id from events where operation_id is not null limit 1").remove(0);
    let asked = |query: &&str| {
        query
            .replace("00000000-0000-0000-0000-000000000000", &id)
            .replace("-1 day", "-9999 day")
            .replace("'1 day'", "'9999 day'")
    };
    let (in_postgres, in_sqlite) =
        ([queries("sql"), queries("sql search")], [queries("sqlite"), queries("sqlite search")]);
    assert_eq!((in_postgres[0].len(), in_sqlite[0].len(), in_postgres[1].len(), in_sqlite[1].len()), (9, 7, 1, 1));
    let [one, other] = [in_postgres.concat(), in_sqlite.concat()];
    for query in one.iter().map(asked) {
        // `create index concurrently` cannot run in the transaction of several statements, so they run one by one.
        let answers: Vec<_> =
            query.split_inclusive(';').filter(|one| one.trim() != "").map(|one| tables.database.psql(one)).collect();
        assert!(
            query.starts_with("create index")
                || query.starts_with("delete")
                || answers.iter().all(|rows| !rows.is_empty()),
            "{query}"
        );
    }
    for query in other.iter().map(asked) {
        assert!(!sqlite(&tables.file, &query).is_empty(), "{query}");
    }
}

#[tokio::test]
async fn each_transaction_sends_a_notification() {
    let Some((_simulator, setup, tables)) = tables(Options { events: 30, ..Options::default() }).await else { return };
    let setup = setup.with("sinks.warehouse.notify", "channeld_events");
    let (client, mut connection) = tokio_postgres::connect(&tables.database.url(), NoTls).await.unwrap();
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let listening = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notification) = message {
                told.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    client.batch_execute("listen channeld_events").await.unwrap();
    let daemon = setup.start();
    let mut through = 0;
    while through < 30 {
        let note = tokio::time::timeout(LONGEST_WAIT, heard.recv()).await.unwrap().unwrap();
        let note: serde_json::Value = serde_json::from_str(&note).unwrap();
        assert_eq!((&note["channel"], &note["sink"]), (&"c0".into(), &"warehouse".into()));
        through = note["through"].as_i64().unwrap();
    }
    daemon.stop().await;
    listening.abort();
}
