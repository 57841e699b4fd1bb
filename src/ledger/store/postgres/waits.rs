//! The waits for the tables that instances share.
//!
//! A table can be locked for minutes, for example by `vacuum full`, or it can be unusable. Each statement that uses it fails
//! after a bounded time and is repeated. This module adds up these attempts, so that an operator sees one wait.
//!
//! # Invariants
//!
//! * **A wait begins with the first attempt** and ends with the next successful statement on the same tables.
//! * **Abandoned waits end.** If a failed statement is not repeated, its wait does not grow, and is then forgotten.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use crate::store::{LONG_WAIT, TableWait};
use net::tasks::lock;

/// A failed statement that is still needed is repeated after a second, or with the next heartbeat. A statement that was not
/// repeated within this time was abandoned.
const REPEATED_WITHIN: Duration = Duration::from_secs(30);

/// The waits for tables. Waits are grouped by the set of tables that a statement uses.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<BTreeMap<String, Attempts>>);

/// The attempts since the last success.
#[derive(Debug, Default)]
struct Attempts {
    /// When each running statement began.
    running: Vec<Instant>,
    failed: Option<FailedAttempts>,
    is_logged: bool,
}

#[derive(Debug)]
struct FailedAttempts {
    /// When the first attempt began.
    since: Instant,
    /// When the last attempt ended.
    until: Instant,
    error: String,
}

/// A running statement. If it is dropped, the statement has failed.
#[derive(Debug)]
pub(super) struct RunningStatement<'w> {
    waits: &'w Waits,
    tables: String,
    began: Instant,
    is_over: bool,
}

impl Waits {
    /// Records that a statement on these tables begins.
    pub(super) fn begin(&self, tables: String) -> RunningStatement<'_> {
        let began = Instant::now();
        lock(&self.0).entry(tables.clone()).or_default().running.push(began);
        RunningStatement { waits: self, tables, began, is_over: false }
    }

    /// The waits that have lasted [`LONG_WAIT`].
    pub(super) fn long(&self) -> Vec<TableWait> {
        let mut tables = lock(&self.0);
        let long = |(tables, attempts): (&String, &mut Attempts)| {
            attempts.forget();
            let (lasts, error) = (attempts.lasts(), attempts.failed.as_ref().map(|failed| failed.error.clone()));
            (lasts >= LONG_WAIT).then(|| TableWait { tables: tables.clone(), lasts, error })
        };
        tables.iter_mut().filter_map(long).collect()
    }

    fn end(&self, tables: &str, began: Instant, error: Option<String>) {
        let mut all = lock(&self.0);
        let Some(attempts) = all.get_mut(tables) else { return };
        attempts.forget();
        if let Some(at) = attempts.running.iter().position(|running| *running == began) {
            attempts.running.swap_remove(at);
        }
        let Some(error) = error else {
            attempts.failed = None;
            if std::mem::take(&mut attempts.is_logged) {
                info!(tables, "the tables of the state's database can be used again");
            }
            return;
        };
        let since = attempts.failed.as_ref().map_or(began, |failed| failed.since.min(began));
        attempts.failed = Some(FailedAttempts { since, until: Instant::now(), error: error.clone() });
        let lasts = attempts.lasts();
        if lasts >= LONG_WAIT && !attempts.is_logged {
            attempts.is_logged = true;
            warn!(
                tables,
                seconds = lasts.as_secs(),
                error,
                "a table of the state's database is locked or cannot be used: waiting, retrying"
            );
        }
    }
}

impl Attempts {
    fn lasts(&self) -> Duration {
        let failed_since = self.failed.as_ref().map(|failed| failed.since);
        match (self.running.iter().min(), &self.failed) {
            (Some(began), _) => failed_since.map_or(*began, |since| since.min(*began)).elapsed(),
            (None, Some(failed)) => failed.until.duration_since(failed.since),
            (None, None) => Duration::ZERO,
        }
    }

    /// Forgets failed attempts that were not repeated.
    fn forget(&mut self) {
        let until = self.running.iter().min().copied().unwrap_or_else(Instant::now);
        if self.failed.as_ref().is_some_and(|failed| until.saturating_duration_since(failed.until) > REPEATED_WITHIN) {
            self.failed = None;
            self.is_logged = false;
        }
    }
}

impl RunningStatement<'_> {
    /// Records how the statement has ended.
    pub(super) fn end(mut self, error: Option<String>) {
        self.is_over = true;
        self.waits.end(&self.tables, self.began, error);
    }
}

impl Drop for RunningStatement<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let error = format!("no answer for {} s", self.began.elapsed().as_secs());
            self.waits.end(&self.tables, self.began, Some(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn proofs(waits: &Waits) -> RunningStatement<'_> {
        waits.begin("proofs".to_owned())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn attempts_add_up_to_one_wait_until_a_statement_succeeds() {
        let waits = Waits::default();
        let first = proofs(&waits);
        advance(SECOND * 9).await;
        assert_eq!(waits.long(), []);
        advance(SECOND).await;
        let mut wait = TableWait { tables: "proofs".to_owned(), lasts: SECOND * 10, error: None };
        assert_eq!(waits.long(), [wait.clone()]);
        first.end(Some("locked".to_owned()));
        waits.begin("requests".to_owned()).end(None);
        advance(SECOND).await;
        // The time between two attempts counts too, and a dropped statement is an attempt.
        let second = proofs(&waits);
        (wait.lasts, wait.error) = (SECOND * 11, Some("locked".to_owned()));
        assert_eq!(waits.long(), [wait.clone()]);
        drop(second);
        assert_eq!(waits.long()[0].error.as_deref(), Some("no answer for 0 s"));
        proofs(&waits).end(None);
        assert_eq!(waits.long(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_is_not_repeated_is_no_wait() {
        let waits = Waits::default();
        proofs(&waits).end(Some("no table".to_owned()));
        advance(SECOND * 20).await;
        assert_eq!(waits.long(), [], "the attempt itself was short");
        advance(REPEATED_WITHIN).await;
        let later = proofs(&waits);
        advance(SECOND * 5).await;
        assert_eq!(waits.long(), [], "the former failure no longer counts");
        later.end(None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_of_another_statement_does_not_end_the_wait_of_a_running_one() {
        let waits = Waits::default();
        let waiting = proofs(&waits);
        for _ in 0..10 {
            advance(SECOND).await;
            proofs(&waits).end(None);
        }
        assert_eq!(waits.long()[0].lasts, SECOND * 10);
        waiting.end(None);
        assert_eq!(waits.long(), []);
    }
}
