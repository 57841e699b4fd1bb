use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, params, params_from_iter};

use super::*;
use crate::tables::backend::QueryResult;
use crate::tables::sql::{NEWEST_FIRST, TableRange};
use crate::tables::sqlite::Sqlite;
use sink::SqliteSettings;

pub(crate) const CHANNEL: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

fn sqlite_settings(path: PathBuf, search: Search) -> SqliteSettings {
    SqliteSettings {
        path,
        table: "events".to_owned(),
        operations: false,
        search,
        keep_for: None,
        keep_for_consumers: Vec::new(),
        keep_size: None,
        feed: false,
    }
}

/// A table with this many rows. Two rows share each second, and the last three rows have no time.
pub(crate) fn table(directory: &Path, search: Search, rows: i64) -> Table {
    let path = directory.join("events.db");
    let mut connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "pragma journal_mode = wal; create table events (id integer primary key, channel_id text, event_offset integer, \
             channel text, event_id text, type text, name text, source text, service text, network text, time text, \
             received text, delivered text, status text, status_reason text, watcher_id text, operation_id text, \
             wallet_operation_id text, wallet_id text, query_id text, \
             verification text, digest text, decoded text, record text, confidence text, unique (channel_id, event_offset)); \
             create index events_time on events (time); \
             create virtual table events_search using fts5(text, content='', tokenize='unicode61'); \
             create virtual table events_ends using fts5(text, content='', tokenize='unicode61', detail='none');",
        )
        .unwrap();
    let transaction = connection.transaction().unwrap();
    for row in 0..rows {
        let time = Timestamp::from_second(1_800_000_000 + row / 2).unwrap();
        let time = (row < rows - 3).then(|| format!("{time:.3}"));
        let kind = if row % 10 == 0 { "wallet.status" } else { "watcher.event" };
        let name = format!("Event{row}");
        transaction
            .execute(
                "insert into events (channel_id, event_offset, channel, type, name, time, delivered, verification, decoded, record) \
                 values (?1, ?2, 'c0', ?3, ?4, ?5, '2027-01-15T08:00:00.000Z', 'verified', ?6, '{\"event\":{\"a\":1}}')",
                params![CHANNEL, row, kind, name, time, format!("{{\"amount\":\"{row}%_\"}}")],
            )
            .unwrap();
        transaction
            .execute(
                "insert into events_search (rowid, text) values (?1, ?2)",
                params![row + 1, format!("{name} amount {row}")],
            )
            .unwrap();
    }
    transaction.commit().unwrap();
    let settings = sqlite_settings(path, search);
    Table { sink: "local".to_owned(), search, backend: Box::new(Sqlite { settings }), sample: Mutex::default() }
}

/// A table whose pages reach their time limit after a number of rows.
struct Slow {
    inner: Box<dyn TableBackend>,
    rows_in_time: usize,
}

#[async_trait]
impl TableBackend for Slow {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    fn table(&self) -> String {
        self.inner.table()
    }

    async fn query(&self, deadline: Instant, sql: String, values: Vec<String>) -> Result<QueryResult, TableError> {
        self.inner.query(deadline, sql, values).await
    }

    async fn page(&self, page_query: PageQuery<'_>) -> Result<RowPage, TableError> {
        let mut page = self.inner.page(page_query).await?;
        page.is_stopped = page.rows.len() > self.rows_in_time;
        page.rows.truncate(self.rows_in_time);
        Ok(page)
    }

    fn total(&self) -> String {
        self.inner.total()
    }

    fn mark(&self) -> String {
        self.inner.mark()
    }

    async fn arrived(&self, filter: &EventFilter, mark: i64, deadline: Instant) -> Result<usize, TableError> {
        self.inner.arrived(filter, mark, deadline).await
    }
}

/// Makes the pages of a table reach their time limit after a number of rows.
pub(crate) fn slow(table: Table, rows_in_time: usize) -> Table {
    Table { backend: Box::new(Slow { inner: table.backend, rows_in_time }), ..table }
}

/// Reads all rows in pages of seven.
async fn all(table: &Table, filter: &EventFilter) -> Vec<i64> {
    let (mut offsets, mut below) = (Vec::new(), None);
    loop {
        let page = table.page(filter, below.as_ref(), 7, true).await.unwrap();
        offsets.extend(page.rows.iter().map(|row| row.offset));
        if !page.has_more {
            return offsets;
        }
        below = page.rows.last().and_then(PagePosition::of);
    }
}

#[tokio::test]
async fn events_at_one_offset_are_all_listed_across_pages() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::None, 30);
    let rows = Connection::open(directory.path().join("events.db")).unwrap();
    rows.execute_batch(
        "create table copied as select * from events where event_offset in (10, 28); \
         drop table events; create table events as select * from copied;",
    )
    .unwrap();
    for number in 0..20 {
        rows.execute(
            "insert into events select id, channel_id, event_offset, channel, ?1, type, name, source, service, network, time, \
             received, delivered, status, status_reason, watcher_id, operation_id, wallet_operation_id, wallet_id, query_id, \
             verification, digest, decoded, record, confidence from copied",
            params![format!("{number:08x}-7425-40de-944b-e07fc1f90ae7")],
        )
        .unwrap();
    }
    rows.execute_batch("update events set id = rowid").unwrap();
    assert_eq!(all(&table, &EventFilter::default()).await, [[10; 21], [28; 21]].concat());
    let full_row = table.full_row(CHANNEL.parse().unwrap(), 10).await.unwrap().unwrap();
    assert_eq!(full_row.row.event_id.as_deref(), Some("00000013-7425-40de-944b-e07fc1f90ae7"), "the last written row");
    let page = table.page(&EventFilter::default(), None, 50, true).await.unwrap();
    for row in page.rows {
        let full_row = table.row_at(&PagePosition::of(&row).unwrap()).await.unwrap().unwrap();
        assert_eq!(full_row.row, row);
    }
}

fn chosen(facet: Facet, value: &str) -> EventFilter {
    EventFilter { chosen: [(facet, vec![value.to_owned()])].into(), ..EventFilter::default() }
}

#[tokio::test]
async fn pages_list_each_row_once_newest_first() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::None, 100);
    let expected: Vec<_> = (0..97).rev().chain((97..100).rev()).collect();
    assert_eq!(all(&table, &EventFilter::default()).await, expected);
    let wallets = all(&table, &chosen(Facet::Type, "wallet.status")).await;
    assert_eq!(wallets, (0..10).rev().map(|ten| ten * 10).collect::<Vec<_>>());
    let (from, to) = (Timestamp::from_second(1_800_000_010).ok(), Timestamp::from_second(1_800_000_011).ok());
    assert_eq!(all(&table, &EventFilter { from, to, ..EventFilter::default() }).await, [23, 22, 21, 20]);
}

#[test]
fn the_list_is_read_by_the_index_on_the_time() {
    let directory = tempfile::tempdir().unwrap();
    drop(table(directory.path(), Search::None, 10));
    let rows = Connection::open(directory.path().join("events.db")).unwrap();
    for range in [TableRange::Timed, TableRange::Timeless, TableRange::Since(Timestamp::UNIX_EPOCH)] {
        for filter in [EventFilter::default(), chosen(Facet::Type, "wallet.status")] {
            let mut statement = Statement::new(Dialect::Sqlite);
            statement.filtered(&filter);
            statement.within(range, None);
            let (columns, conditions) = (sql::columns(Dialect::Sqlite), statement.conditions());
            let query = format!("select {columns} from events where {conditions} order by {NEWEST_FIRST} limit 200");
            let mut plan = rows.prepare(&format!("explain query plan {query}")).unwrap();
            let steps = plan.query_map(params_from_iter(&statement.values), |row| row.get::<_, String>(3)).unwrap();
            let steps: Vec<_> = steps.map(Result::unwrap).collect();
            assert!(steps[0].contains("USING INDEX events_time"), "{range:?} {filter:?}: {steps:?}");
        }
    }
}

#[tokio::test]
async fn a_table_that_is_larger_than_its_sample_is_read_without_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let rows = i64::try_from(SAMPLED).unwrap() + 1_500;
    let table = table(directory.path(), Search::Words, rows);
    let sample = table.sample().await.unwrap();
    assert_eq!((sample.rows.len(), sample.total), (SAMPLED, rows.unsigned_abs()));
    let rare = all(&table, &chosen(Facet::Name, "Event3")).await;
    assert_eq!(rare, [3]);
    let wallets = all(&table, &chosen(Facet::Type, "wallet.status")).await;
    assert_eq!(wallets.len(), 350);
    assert!(wallets[1..].is_sorted_by(|one, other| one > other), "{wallets:?}");
}

#[tokio::test]
async fn the_end_of_an_address_is_found_in_old_rows_together_with_other_words() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::Words, 3_600);
    let rows = Connection::open(directory.path().join("events.db")).unwrap();
    // Offset 5 has an address with this end, offset 20 a word with this beginning, and offset 25 has both.
    rows.execute_batch(
        "update events set source = '0x00112233445566778899aabbccddeeff00c0ffee' where event_offset in (5, 25)",
    )
    .unwrap();
    for id in [6, 26] {
        rows.execute(
            "insert into events_ends (rowid, text) values (?1, ?2)",
            params![id, "eeff0c00ffeeddccbbaa99887766554433221100"],
        )
        .unwrap();
    }
    for id in [21, 26] {
        rows.execute("insert into events_search (rowid, text) values (?1, 'c0ffee77')", [id]).unwrap();
    }
    for (word, offsets) in
        [("C0FFEE", &[25, 20, 5][..]), ("0c0ffee", &[25, 5]), ("c0ffee7", &[25, 20]), ("c0ffe", &[25, 20])]
    {
        let filter = EventFilter { words: vec![word.to_owned()], ..EventFilter::default() };
        assert_eq!(all(&table, &filter).await, offsets, "{word}");
        let page = table.page(&filter, None, 2, true).await.unwrap();
        assert_eq!(page.count, Some(HitCount::Exactly(offsets.len())), "{word}");
        assert_eq!(table.arrived(&filter, "25").await, Ok(1), "{word}");
        let channel = EventFilter { chosen: chosen(Facet::Channel, "c0").chosen, ..filter };
        assert_eq!(all(&table, &channel).await, offsets, "{word} with a filter");
    }
    // The table of an older version has no such index. The newest rows are then searched.
    rows.execute_batch("drop table events_ends").unwrap();
    let filter = EventFilter { words: vec!["0c0ffee".to_owned()], ..EventFilter::default() };
    assert_eq!(all(&table, &filter).await, [25, 5]);
}

#[tokio::test]
async fn hexadecimal_digits_find_an_address_without_0x_and_by_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::Words, 20);
    let rows = Connection::open(directory.path().join("events.db")).unwrap();
    let address = "0x00112233445566778899aabbccddeeffc0ffee07";
    rows.execute("update events set event_offset = 50, id = 51, source = ?1 where event_offset = 9", [address])
        .unwrap();
    rows.execute("insert into events_search (rowid, text) values (51, ?1)", [address]).unwrap();
    for (word, offsets) in [
        (address, &[50][..]),
        ("001122334455", &[50]),
        (&address[2..], &[50]),
        ("c0ffee07", &[50]),
        ("C0FFEE07", &[50]),
        ("ffc0ffee", &[50]),
        ("c0ffee08", &[]),
        ("fee07x", &[]),
        ("001122334455 -", &[50]),
    ] {
        let words = word.split(' ').map(str::to_owned).collect();
        let filter = EventFilter { words, ..EventFilter::default() };
        assert_eq!(all(&table, &filter).await, offsets, "{word}");
        let page = table.page(&filter, None, 7, true).await.unwrap();
        assert!(page.rows.iter().all(|row| row.excerpt.is_some()), "the row shows why {word} matches: {:?}", page.rows);
    }
}

#[tokio::test]
async fn words_are_found_with_and_without_an_index() {
    let directory = tempfile::tempdir().unwrap();
    for search in [Search::None, Search::Words] {
        let directory = directory.path().join(<&str>::from(search));
        std::fs::create_dir(&directory).unwrap();
        let table = table(&directory, search, 3_600);
        let words = |words: &[&str]| EventFilter {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            ..EventFilter::default()
        };
        assert_eq!(all(&table, &words(&["event3599"])).await, [3599], "{search:?}");
        let page = table.page(&words(&["event3599", "amount"]), None, 7, true).await.unwrap();
        let excerpt = page.rows[0].excerpt.clone().unwrap();
        assert_eq!(
            (&*excerpt.word, &*excerpt.after),
            ("amount", ": 3599%_"),
            "words that the row shows are skipped: {search:?}"
        );
        assert_eq!(all(&table, &words(&["amount", "Event17"])).await.len(), 111, "the beginning of a word: {search:?}");
        assert_eq!(all(&table, &words(&["nowhere"])).await, [0_i64; 0], "{search:?}");
        for hostile in ["\"", "*", "%", "'; drop table events; --", "a OR b", "NEAR(", "text:x"] {
            table.page(&words(&[hostile]), None, 7, true).await.unwrap();
        }
        assert_eq!(all(&table, &words(&["amount"])).await.len(), 3_600, "{search:?}");
    }
}

#[tokio::test]
async fn a_frequent_word_is_searched_only_as_a_whole_and_the_page_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::Words, 3_600);
    let page = async |words: &str| {
        let words = words.split(' ').map(str::to_owned).collect();
        table.page(&EventFilter { words, ..EventFilter::default() }, None, 7, true).await.unwrap()
    };
    let (many, few, begun) = (page("amount").await, page("event17").await, page("amo*").await);
    assert_eq!((many.rows.len(), many.only_whole), (7, Some(OnlyWhole::Many)));
    assert_eq!(many.rows[0].offset, 3_599, "the index lists the last written row first");
    assert_eq!((few.rows[0].offset, few.only_whole), (1_799, None), "words with this prefix are also found");
    assert_eq!((begun.rows.len(), begun.only_whole), (7, None));
    assert_eq!((many.count, begun.count), (Some(HitCount::AtLeast(1_000)), Some(HitCount::AtLeast(1_000))));
    assert_eq!((few.count, page("nowhere").await.count), (Some(HitCount::Exactly(111)), Some(HitCount::Exactly(0))));
    for hostile in ["*", "\"*", "amount \"*", "-* *"] {
        assert!(page(hostile).await.rows.len() <= 7, "{hostile}");
    }
    let words = |words: &str| EventFilter { words: vec![words.to_owned()], ..EventFilter::default() };
    assert_eq!(all(&table, &words("amo*")).await.len(), 3_600);
    let wallets = EventFilter { chosen: chosen(Facet::Type, "wallet.status").chosen, ..words("amount") };
    assert_eq!(table.page(&wallets, None, 7, true).await.unwrap().count, None, "the word index does not count types");
    assert_eq!(all(&table, &wallets).await.len(), 360);
}

#[tokio::test]
async fn late_deliveries_are_marked_and_neighbors_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::None, 20);
    let rows = Connection::open(directory.path().join("events.db")).unwrap();
    rows.execute("update events set delivered = '2027-01-15T09:00:00.000Z' where event_offset = 7", []).unwrap();
    let followed = async |offset| table.followed(CHANNEL.parse().unwrap(), offset).await.unwrap();
    assert_eq!(followed(7).await, "2027-01-15T08:00:00Z".parse().ok());
    assert_eq!(followed(19).await, None, "no event follows the newest event");
    let neighbors = async |offset| table.neighbors(CHANNEL.parse().unwrap(), offset).await.unwrap();
    rows.execute("delete from events where event_offset = 8", []).unwrap();
    assert_eq!(neighbors(7).await, [Some(6), Some(9)]);
    assert_eq!((neighbors(0).await, neighbors(19).await), ([None, Some(1)], [Some(18), None]));
}

#[tokio::test]
async fn new_rows_are_counted_and_a_row_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let table = table(directory.path(), Search::Words, 20);
    let mark = table.mark().await.unwrap();
    assert_eq!(table.arrived(&EventFilter::default(), &mark).await, Ok(0));
    assert_eq!(table.arrived(&EventFilter::default(), "15").await, Ok(5));
    assert_eq!(table.arrived(&chosen(Facet::Name, "Event16"), "15").await, Ok(1));
    let words = EventFilter { words: vec!["Event16".to_owned()], ..EventFilter::default() };
    assert_eq!(table.arrived(&words, "15").await, Ok(1));
    assert_eq!(table.arrived(&words, "18").await, Ok(0));
    assert!(table.arrived(&words, "x").await.is_err());
    let full_row = table.full_row(CHANNEL.parse().unwrap(), 7).await.unwrap().unwrap();
    assert_eq!((full_row.row.name.as_deref(), full_row.event()), (Some("Event7"), Some("{\"a\":1}")));
    assert_eq!(table.full_row(CHANNEL.parse().unwrap(), 70).await, Ok(None));
}

#[tokio::test]
async fn reading_writes_nothing_and_missing_tables_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let settings = sqlite_settings(directory.path().join("none.db"), Search::None);
    let table = Table {
        sink: "local".to_owned(),
        search: Search::None,
        backend: Box::new(Sqlite { settings }),
        sample: Mutex::default(),
    };
    let Err(TableError::Failed(why)) = table.page(&EventFilter::default(), None, 7, false).await else {
        panic!("the missing table is not reported")
    };
    assert!(why.contains("does not exist yet"), "{why}");
    assert!(!directory.path().join("none.db").exists());
}

#[test]
fn the_event_is_found_in_every_delivered_format() {
    for (record, event) in [
        (r#"{"event":{"headers":{}}}"#, Some(r#"{"headers":{}}"#)),
        (r#"{"specversion":"1.0","data":{"event":{"b":2}}}"#, Some(r#"{"b":2}"#)),
        (r#"{"headers":{},"payload":{}}"#, Some(r#"{"headers":{},"payload":{}}"#)),
        (r#"{"text":"a message"}"#, None),
        ("verified c0 1", None),
    ] {
        let full_row = FullRow { record: record.to_owned(), ..FullRow::default() };
        assert_eq!(full_row.event(), event, "{record}");
    }
}
