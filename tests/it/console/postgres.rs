//! The list, the search and the count of new events with a PostgreSQL table, for each kind of search index.

use serde_json::Value;
use simulator::{Options, Simulator};

use crate::support::{Daemon, Database, Setup, Visitor, deliverable};

async fn offsets(visitor: &Visitor, path: &str) -> Vec<i64> {
    let (mut offsets, mut next) = (Vec::new(), Some(path.to_owned()));
    while let Some(path) = next {
        let page = visitor.get(&path).await;
        assert!(!page.body.contains("notice bad"), "{path}: {page:?}");
        offsets.extend(page.offsets());
        next = page.next_page();
        assert!(offsets.len() < 1_000, "the pages do not end");
    }
    offsets
}

#[tokio::test]
async fn a_table_in_postgresql_is_listed_searched_and_counted() {
    for search in ["none", "words", "trigrams"] {
        let Some(database) = Database::new().await else { return };
        let simulator =
            Simulator::start(Options { events: 90, unsigned: 0.2, channels: 2, ..Options::default() }).await.unwrap();
        let setup = Setup::reading(&simulator)
            .with("sinks.warehouse.type", "postgres")
            .with("sinks.warehouse.url", database.url())
            .with("sinks.warehouse.search", search)
            .with("channels.c0.sinks", vec!["warehouse"])
            .with("channels.c1.sinks", vec!["warehouse"]);
        let mut daemon = setup.start();
        let is_recorded = |daemon: &Daemon, name: &str, number| {
            let last = *deliverable(&simulator, number).last().unwrap();
            let recorded = daemon.log().lines("batch recorded");
            recorded.iter().any(|line| line["channel"] == name && line["offset"] == last)
        };
        let are_recorded = |daemon: &Daemon| is_recorded(daemon, "c0", 0) && is_recorded(daemon, "c1", 1);
        daemon.until("all events are in the table", are_recorded).await;
        let console = setup.console(&["--from", "warehouse"]).await;
        let visitor = console.enter().await;
        assert_eq!(visitor.get("/export?as=csv").await.body.lines().count(), 181, "{search}");
        let listed = offsets(&visitor, "/?rows=50").await;
        assert_eq!(listed.len(), 180, "{search}");
        let of_one = offsets(&visitor, "/?channel=c1&verdict=verified&verdict=unsigned").await;
        assert_eq!(of_one.len(), 90, "{search}");

        let sql = "select decoded #>> '{chain_event,tx_hash}', event_offset from events where channel = 'c0' and name is not null limit 1";
        let row = &database.query(sql).await[0];
        let (word, offset): (String, i64) = (row.get(0), row.get(1));
        assert_eq!(offsets(&visitor, &format!("/?q={word}")).await, [offset], "{search}");
        let why = format!("<bdi>tx_hash</bdi>: <bdi><mark>{word}</mark></bdi>");
        visitor.until(&format!("/?q={word}"), search, |page| page.body.contains(&why)).await;
        // The digits without 0x, a part, and the end.
        for part in [&word[2..30], &word[10..40], &word[50..]] {
            assert_eq!(offsets(&visitor, &format!("/?q={part}")).await, [offset], "{search} {part}");
        }
        for hostile in
            ["%27%3Bdrop+table+events", "%25", "%5C", "abc+%26%26%26+%7C%7C%7C+%21", "%3A*%3A*+%3A%3A", "%22"]
        {
            let page = visitor.get(&format!("/?q={hostile}xyz")).await;
            assert!(!page.body.contains("notice bad"), "{search} {hostile}: {page:?}");
        }

        let page = visitor.get("/").await;
        let new = format!("/new?mark={}", page.attribute("data-mark"));
        simulator.publish(1, 4);
        let count =
            |new: &crate::support::Answer| serde_json::from_str::<Value>(&new.body).is_ok_and(|new| new["count"] == 4);
        visitor.until(&new, "the new events are counted", count).await;
        // On a busy machine, the time of a page can run out before its first row.
        let list = visitor.until("/", "the page lists events", |page| !page.offsets().is_empty()).await;
        let path = list.link("class=\"open\" href=\"").unwrap();
        let one = visitor.get(&path).await;
        assert!(one.body.contains("Delivered to"), "{search}: {one:?}");
        daemon.stop().await;
    }
}
