//! Deletes rows that exceed `keep_for` or `keep_size`, in small steps, oldest first.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tracing::warn;

use super::SqliteSettings;
use super::database::Database;
use super::error;
use super::schema::Statements;
use net::Chain;
use telemetry::metrics::Upkeep;

/// The maximum number of rows in one step. Events are written between two steps.
const AT_ONCE: usize = 1_000;

/// The interval at which upkeep runs if the last step found nothing more to delete.
const EVERY: Duration = Duration::from_secs(30);

/// How many free pages the file keeps for new rows: 32 MiB.
const FREE_PAGES: i64 = 2_048;

/// The maximum number of free pages that one step returns to the file system.
const GIVEN_BACK: i64 = 512;

/// How long to wait if no upkeep is scheduled, or the settings have no bounds.
const NEVER: Duration = Duration::from_secs(60 * 60);

impl Database {
    /// How long until upkeep is due.
    pub(super) fn upkeep_is_due_in(&self) -> Duration {
        let has_bounds = self.settings.keep_for.is_some() || self.settings.keep_size.is_some();
        match self.upkeep_at {
            Some(at) if has_bounds => at.saturating_duration_since(Instant::now()),
            _ => NEVER,
        }
    }

    pub(super) fn upkeep(&mut self) {
        let (settings, statements) = (self.settings.clone(), self.statements.clone());
        let done = self.opened().and_then(|connection| {
            delete(connection, &settings, &statements).map_err(|error| error::of(&error, &settings.path))
        });
        self.note();
        let is_more = done.unwrap_or_else(|error| {
            self.failures.count(Upkeep::Delete);
            let path = settings.path.display();
            warn!(%path, error = %Chain(&error), "old rows cannot be deleted: retrying, events are not affected");
            false
        });
        self.upkeep_at = Some(Instant::now() + if is_more { Duration::ZERO } else { EVERY });
    }
}

/// Deletes some rows, or returns some free pages to the file system. Returns whether there may be more to do.
fn delete(connection: &mut Connection, settings: &SqliteSettings, statements: &Statements) -> rusqlite::Result<bool> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let pragma = |name: &str| transaction.query_row(&format!("pragma {name}"), [], |row| row.get::<_, i64>(0));
    let (pages, free, page_size) = (pragma("page_count")?, pragma("freelist_count")?, pragma("page_size")?);
    let used = u64::try_from((pages - free) * page_size).unwrap_or(0);
    let excess = settings.keep_size.map_or(0, |size| used.saturating_sub(size));
    let over = over(&transaction, settings, statements, excess)?;
    if let Some(last) = over.last() {
        for statement in &statements.delete {
            transaction.execute(statement, [last])?;
        }
    } else if free > FREE_PAGES {
        // The pragma returns one row for each page.
        let mut giving_back = transaction.prepare(&format!("pragma incremental_vacuum({GIVEN_BACK})"))?;
        let mut given_back = giving_back.query([])?;
        while given_back.next()?.is_some() {}
    }
    transaction.commit()?;
    Ok(over.len() == AT_ONCE || excess > 0 && !over.is_empty() || over.is_empty() && free > FREE_PAGES + GIVEN_BACK)
}

/// The ids of the oldest rows that must be deleted. These are the rows that are too old, and further rows until the records
/// of all these rows together have `excess` bytes.
fn over(
    transaction: &Transaction<'_>,
    settings: &SqliteSettings,
    statements: &Statements,
    excess: u64,
) -> rusqlite::Result<Vec<i64>> {
    let oldest_kept = settings.keep_for.and_then(|keep| Timestamp::now().checked_sub(keep).ok());
    let oldest_kept = oldest_kept.map(|time| format!("{time:.3}"));
    let mut oldest = transaction.prepare(&statements.oldest)?;
    let mut rows = oldest.query([i64::try_from(AT_ONCE).unwrap_or(i64::MAX)])?;
    let (mut over, mut bytes) = (Vec::new(), 0);
    // The query returns rows in the order in which they were written. If one row is kept, all later rows are kept too.
    while let Some(row) = rows.next()? {
        let (id, delivered, size) = (row.get(0)?, row.get::<_, String>(1)?, row.get::<_, u32>(2)?);
        if bytes >= excess && oldest_kept.as_ref().is_none_or(|kept| delivered >= *kept) {
            break;
        }
        bytes += u64::from(size);
        over.push(id);
    }
    Ok(over)
}
