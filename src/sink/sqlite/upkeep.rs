//! Deletes rows that exceed `keep_for` or `keep_size`, in small steps, oldest first.
//!
//! `keep_for` does not delete rows that one of the consumers in `keep_for_consumers` has not committed. `keep_size` does: the disk must
//! not fill up because a consumer commits nothing.
//!
//! The log counts toward `keep_size`. It is written into the main file first. A program that reads the database in one long
//! transaction prevents this, and the log grows. This is reported. The log then counts at most half of `keep_size`, because
//! deleting rows does not make it shorter.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tracing::{info, warn};

use super::SqliteSettings;
use super::database::{Database, checkpoint_now};
use super::schema::Statements;
use super::{error, files};
use crate::settings::{ConsumedChannel, FeedConsumer};
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

/// The log is written into the main file if it has more than this share of `keep_size`: a quarter.
const LOG_SHARE: u64 = 4;

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
        let log = self.shorten_log();
        let done = self.opened().and_then(|connection| {
            delete(connection, &settings, &statements, log).map_err(|error| error::of(&error, &settings.path))
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

    /// Writes a log that is long for `keep_size` into the main file. Returns how many bytes the log still has.
    fn shorten_log(&mut self) -> u64 {
        let Some(keep_size) = self.settings.keep_size else { return 0 };
        let long = keep_size / LOG_SHARE;
        if self.log_bytes() > long {
            // If the database cannot be used, the deletion reports it.
            let is_whole = self.opened().is_ok_and(|connection| checkpoint_now(connection).unwrap_or(true));
            self.report_log(is_whole, long);
        }
        self.log_bytes()
    }

    /// Reports a log of more than `long` bytes that a reader keeps from being written into the main file.
    pub(super) fn report_log(&mut self, is_whole: bool, long: u64) {
        let (path, bytes) = (self.settings.path.clone(), self.log_bytes());
        let path = path.display();
        let is_kept = !is_whole && bytes > long;
        if is_kept {
            self.failures.count(Upkeep::Delete);
        }
        match (is_kept, self.is_log_reported) {
            (true, false) => {
                warn!(%path, bytes, "the write-ahead log of the database grows, because another program reads in a long transaction: end that transaction; events are not affected");
            }
            (false, true) => info!(%path, "the write-ahead log of the database was written into the main file again"),
            _ => {}
        }
        self.is_log_reported = is_kept;
    }

    fn log_bytes(&self) -> u64 {
        fs::metadata(files::beside(&self.settings.path, "-wal")).map_or(0, |log| log.len())
    }
}

/// Deletes some rows, or returns some free pages to the file system. The log has `log` bytes. Returns whether there may be more to
/// do.
fn delete(
    connection: &mut Connection,
    settings: &SqliteSettings,
    statements: &Statements,
    log: u64,
) -> rusqlite::Result<bool> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let pragma = |name: &str| transaction.query_row(&format!("pragma {name}"), [], |row| row.get::<_, i64>(0));
    let (pages, free, page_size) = (pragma("page_count")?, pragma("freelist_count")?, pragma("page_size")?);
    let used = u64::try_from((pages - free) * page_size).unwrap_or(0);
    let excess = settings.keep_size.map_or(0, |size| (used + log.min(size / 2)).saturating_sub(size));
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
    let mut committed_in = BTreeMap::new();
    let mut oldest = transaction.prepare(&statements.oldest)?;
    let mut rows = oldest.query([i64::try_from(AT_ONCE).unwrap_or(i64::MAX)])?;
    let (mut over, mut bytes) = (Vec::new(), 0);
    // The query returns rows in the order in which they were written. If one row is kept, all later rows are kept too.
    while let Some(row) = rows.next()? {
        let (id, delivered, size) = (row.get(0)?, row.get::<_, String>(1)?, row.get::<_, u32>(2)?);
        let (channel, position) = ((row.get(3)?, row.get(4)?), row.get::<_, Option<i64>>(5)?);
        let committed = match committed_in.entry(channel) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let committed = committed(transaction, settings, statements, new.key())?;
                *new.insert(committed)
            }
        };
        let is_awaited = committed.is_some_and(|through| position.is_none_or(|at| at > through));
        if bytes >= excess && (is_awaited || oldest_kept.as_ref().is_none_or(|kept| delivered >= *kept)) {
            break;
        }
        bytes += u64::from(size);
        over.push(id);
    }
    Ok(over)
}

/// The position up to which all consumers in `keep_for_consumers` that may read this channel have processed it. The
/// channel is given by its id and its name. `None` if no such consumer may read it. A consumer that has not begun has processed nothing.
fn committed(
    transaction: &Transaction<'_>,
    settings: &SqliteSettings,
    statements: &Statements,
    (id, name): &(String, String),
) -> rusqlite::Result<Option<i64>> {
    let known = id.parse().ok();
    let may_read = |kept: &&FeedConsumer| match &kept.channel {
        ConsumedChannel::Known(id) => Some(*id) == known,
        ConsumedChannel::Named(named) => named == name,
    };
    let through = |FeedConsumer { consumer, .. }: &FeedConsumer| {
        let cursor = transaction.query_row(&statements.cursor, params![consumer, id], |row| row.get(0));
        Ok(cursor.optional()?.unwrap_or(0))
    };
    let cursors = settings.keep_for_consumers.iter().filter(may_read).map(through);
    Ok(cursors.collect::<rusqlite::Result<Vec<i64>>>()?.into_iter().min())
}
