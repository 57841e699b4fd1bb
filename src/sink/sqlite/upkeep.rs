//! What is older, or more, than is kept is deleted: the oldest first, some at a time.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tracing::warn;

use super::SqliteSettings;
use super::database::Database;
use super::refusal::Failure;
use super::schema::Statements;
use net::Chain;
use telemetry::metrics::Upkeep;

/// Rows that are deleted at once: events are written between.
const AT_ONCE: usize = 1_000;

/// Between two looks where nothing is due.
const EVERY: Duration = Duration::from_secs(30);

/// Free pages that the file keeps, for what comes next: 32 MiB.
const FREE_PAGES: i64 = 2_048;

/// Free pages that are given back at once.
const GIVEN_BACK: i64 = 512;

/// Where nothing is to be deleted.
const NEVER: Duration = Duration::from_secs(60 * 60);

impl Database {
    /// How long to wait for work before looking again.
    pub(super) fn upkeep_is_due_in(&self) -> Duration {
        let has_bounds = self.settings.keep_for.is_some() || self.settings.keep_size.is_some();
        match self.upkeep_at {
            Some(at) if has_bounds => at.saturating_duration_since(Instant::now()),
            _ => NEVER,
        }
    }

    /// Deletes some of what is not kept.
    pub(super) fn upkeep(&mut self) {
        let (settings, statements) = (self.settings.clone(), self.statements.clone());
        let failure = |error| Failure::of(&error, &settings.path);
        let done = self.opened().and_then(|connection| delete(connection, &settings, &statements).map_err(failure));
        self.note();
        let is_more = done.unwrap_or_else(|failure| {
            self.failures.count(Upkeep::Delete);
            let (path, error) = (settings.path.display(), failure.error());
            warn!(%path, error = %Chain(&error), "old rows cannot be deleted: trying again, events are not affected");
            false
        });
        self.upkeep_at = Some(Instant::now() + if is_more { Duration::ZERO } else { EVERY });
    }
}

/// Deletes some rows, or gives some free pages back, and says whether there may be more.
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
        // A row for each page.
        let mut giving_back = transaction.prepare(&format!("pragma incremental_vacuum({GIVEN_BACK})"))?;
        let mut given_back = giving_back.query([])?;
        while given_back.next()?.is_some() {}
    }
    transaction.commit()?;
    Ok(over.len() == AT_ONCE || excess > 0 && !over.is_empty() || over.is_empty() && free > FREE_PAGES + GIVEN_BACK)
}

/// The oldest rows, by their ids: those that are too old, and those that make up so many bytes.
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
    // They were written in this order: where one is kept, so are those after it.
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
