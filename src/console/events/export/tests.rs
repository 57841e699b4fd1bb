use super::*;

#[test]
fn csv_cells_are_escaped_and_never_formulas() {
    for (cell, expected) in [
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("a,b", "\"a,b\""),
        ("a\"b", "\"a\"\"b\""),
        ("-1,", "\"'-1,\""),
        ("a;=1+1", "\"a;=1+1\""),
        ("a\t=1+1", "\"a\t=1+1\""),
        ("\t=1+1", "\"'\t=1+1\""),
        ("\u{ff1d}1+1", "'\u{ff1d}1+1"),
    ] {
        assert_eq!(quoted(cell), expected);
    }
}

/// The lines and the error with which a client sees an export end.
async fn seen(lines: Vec<Result<String, String>>, is_csv: bool) -> (String, bool) {
    let parts: Vec<_> = aborted(stream::iter(lines), is_csv).collect().await;
    let is_aborted = parts.last().is_some_and(Result::is_err);
    (parts.into_iter().filter_map(Result::ok).collect(), is_aborted)
}

#[tokio::test]
async fn an_incomplete_export_ends_with_a_line_that_says_so_and_is_aborted() {
    let lines = || vec![Ok("one\n".to_owned()), Err("The disk, \"sda\", failed.".to_owned())];
    let text = "INCOMPLETE: this export ends here, and events are missing.";
    let (csv, is_aborted) = seen(lines(), true).await;
    assert_eq!(csv, format!("one\n\"{text} The disk, \"\"sda\"\", failed.\"\r\n"));
    assert!(is_aborted);
    let (json, is_aborted) = seen(lines(), false).await;
    assert_eq!(json, format!("one\n{{\"error\":\"{text} The disk, \\\"sda\\\", failed.\"}}\n"));
    assert!(is_aborted);
    assert_eq!(seen(vec![Ok("one\n".to_owned())], true).await, ("one\n".to_owned(), false), "a complete one");
}

#[cfg(feature = "sqlite")]
mod of_a_table {
    use rusqlite::{Connection, params};

    use super::*;
    use crate::tables::tests::{CHANNEL, slow, table};
    use sink::Search;

    async fn exported(table: Table, is_csv: bool) -> Result<Vec<String>, String> {
        lines(Arc::new(table), Query::default(), is_csv).try_collect().await
    }

    #[tokio::test]
    async fn an_export_has_more_rows_than_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let rows = 2 * MOST_ROWS + 50;
        let table = table(directory.path(), Search::None, i64::try_from(rows).unwrap());
        let lines = exported(table, true).await.unwrap();
        assert_eq!(lines.len(), rows);
        assert_eq!(lines.iter().collect::<std::collections::BTreeSet<_>>().len(), rows, "each row once");
    }

    #[tokio::test]
    async fn an_export_continues_after_a_page_that_reached_its_time_limit() {
        let directory = tempfile::tempdir().unwrap();
        let whole = exported(table(directory.path(), Search::None, 50), true).await.unwrap();
        let other = tempfile::tempdir().unwrap();
        let slow = slow(table(other.path(), Search::None, 50), 3);
        assert_eq!((whole.len(), exported(slow, true).await.unwrap()), (50, whole));
    }

    #[tokio::test]
    async fn a_page_without_a_row_in_its_time_limit_is_an_error_and_not_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let slow = slow(table(directory.path(), Search::None, 5), 0);
        assert_eq!(exported(slow, true).await, Err("The table did not respond in time.".to_owned()));
    }

    #[tokio::test]
    async fn each_of_several_events_at_one_offset_is_exported_with_its_own_record() {
        let directory = tempfile::tempdir().unwrap();
        let table = table(directory.path(), Search::None, 1);
        let rows = Connection::open(directory.path().join("events.db")).unwrap();
        rows.execute_batch("alter table events rename to before; create table events as select * from before limit 0;")
            .unwrap();
        for number in 0..3 {
            let insert = "insert into events (id, channel_id, event_offset, event_id, type, time, verification, record) \
                          values (?1, ?2, 7, ?3, 'watcher.event', '2027-01-15T08:00:00.000Z', 'verified', ?4)";
            let id = format!("0000000{number}-7425-40de-944b-e07fc1f90ae7");
            rows.execute(insert, params![number, CHANNEL, id, format!("{{\"number\":{number}}}")]).unwrap();
        }
        let expected = ["{\"number\":2}\n", "{\"number\":1}\n", "{\"number\":0}\n"];
        assert_eq!(exported(table, false).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn an_export_that_no_longer_finds_longer_words_is_an_error_and_not_complete() {
        let directory = tempfile::tempdir().unwrap();
        let table = Arc::new(table(directory.path(), Search::Words, 900));
        let rows = Connection::open(directory.path().join("events.db")).unwrap();
        // The last row of the list contains only a longer word.
        rows.execute_batch(
            "insert into events (id, channel_id, event_offset, type, verification, record) \
             select 0, channel_id, 900, type, verification, record from events where id = 1; \
             insert into events_search (rowid, text) values (0, 'amounts')",
        )
        .unwrap();
        let export = || {
            let mut query = Query::default();
            query.filter.words.push("amount".to_owned());
            lines(table.clone(), query, true)
        };
        assert_eq!(export().try_collect::<Vec<_>>().await.unwrap().len(), 901);
        let mut changed = Box::pin(export());
        changed.try_next().await.unwrap().expect("the first page has rows");
        let more = "insert into events_search (rowid, text) select id + 5000, 'amount' from events limit 200";
        rows.execute_batch(more).unwrap();
        let error = changed.try_collect::<Vec<_>>().await.unwrap_err();
        assert!(error.contains("passed 1,000"), "{error}");
        assert_eq!(export().try_collect::<Vec<_>>().await.unwrap().len(), 900, "each page searches the whole word");
    }

    #[tokio::test]
    async fn a_table_that_cannot_be_read_is_an_error_and_not_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let table = table(directory.path(), Search::None, 5);
        Connection::open(directory.path().join("events.db")).unwrap().execute_batch("drop table events").unwrap();
        assert!(exported(table, true).await.unwrap_err().contains("does not exist"));
    }
}
