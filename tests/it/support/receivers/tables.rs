//! Tables that sinks write, read with the usual clients of the databases.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::support::{Daemon, Database, LONGEST_WAIT, LOOK_AGAIN, Setup, printed_lines, run};

/// A script that prints the rows of a query in the format of psql.
const PYTHON: &str = "import sqlite3, sys
for row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]):
    print('|'.join('' if cell is None else str(cell) for cell in row))";

/// Both tables of one daemon.
pub(crate) struct Tables {
    pub(crate) database: Database,
    pub(crate) file: PathBuf,
}

impl Setup {
    /// Adds two sinks that receive every event: `warehouse` writes to a table of the database, and `local` to a table
    /// in a file. The sink `file` exists and is not used.
    pub(crate) fn with_tables(mut self, database: Database) -> (Self, Tables) {
        let file = self.path("events.db");
        self.set("sinks.warehouse.type", "postgres");
        self.set("sinks.warehouse.url", database.url());
        self.set("sinks.local.type", "sqlite");
        self.set("sinks.local.path", file.display().to_string());
        self.set("channels.c0.sinks", vec!["warehouse", "local"]);
        (self, Tables { database, file })
    }
}

impl Tables {
    /// The output of psql and python for a query that both understand.
    pub(crate) fn both(&self, query: &str) -> [Vec<String>; 2] {
        [self.database.psql(query), sqlite(&self.file, query)]
    }

    /// Executes statements on both tables.
    pub(crate) async fn change(&self, statements: &str) {
        self.database.change(statements).await;
        rusqlite::Connection::open(&self.file).unwrap().execute_batch(statements).unwrap();
    }

    /// The number of rows of each table: 0 if the table does not exist.
    pub(crate) async fn rows(&self) -> [i64; 2] {
        let rows = self.database.try_query("select count(*) from events").await;
        [rows.map_or(0, |rows| rows[0].get(0)), rows_of(&self.file)]
    }

    /// Waits until each table has at least this number of rows, while the daemon runs. Each new row extends the deadline.
    pub(crate) async fn until(&self, daemon: &mut Daemon, rows: usize) {
        let rows = i64::try_from(rows).unwrap();
        let (mut deadline, mut before) = (Instant::now() + LONGEST_WAIT, [0; 2]);
        while self.rows().await.iter().any(|found| *found < rows) {
            daemon.until("it runs", |_| true).await;
            let found = self.rows().await;
            if found > before {
                (deadline, before) = (Instant::now() + LONGEST_WAIT, found);
            }
            assert!(Instant::now() < deadline, "found {found:?} of {rows} rows\n{}", daemon.log().tail());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Asserts that each table has exactly these events, in any order, and that the cursor of its lane is `through`.
    pub(crate) fn assert_each_once(&self, expected: &[i64], through: i64) {
        for found in self.both("select event_offset from events order by event_offset") {
            assert_eq!(found, expected.iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        for (sink, found) in ["warehouse", "local"].iter().zip(self.both("select sink, through from events_progress")) {
            assert_eq!(found, [format!("{sink}|{through}")]);
        }
    }
}

impl Tables {
    /// Asserts that the positions of the only channel are 1, 2, 3, … in both tables, in the order of delivery.
    pub(crate) fn assert_dense(&self, rows: usize) {
        let expected: Vec<_> = (1..=rows).map(|position| position.to_string()).collect();
        for found in self.both("select position from events order by position") {
            assert_eq!(found, expected);
        }
        for found in self.both("select position from events_progress") {
            assert_eq!(found, [rows.to_string()]);
        }
        let back = "select count(*) from (select delivered, lag(delivered) over (order by position) as earlier from events) m \
                    where delivered < earlier";
        assert_eq!(self.both(back), [["0"], ["0"]]);
    }
}

/// The number of rows of the table in a file: 0 if the table does not exist.
pub(crate) fn rows_of(file: &Path) -> i64 {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let reader = rusqlite::Connection::open_with_flags(file, flags);
    let rows = reader.and_then(|reader| reader.query_row("select count(*) from events", [], |row| row.get(0)));
    rows.unwrap_or(0)
}

/// The output of python for a query on a file.
pub(crate) fn sqlite(file: &Path, query: &str) -> Vec<String> {
    printed_lines(&run(Command::new("python3").arg("-c").arg(PYTHON).arg(file).arg(query)))
}
