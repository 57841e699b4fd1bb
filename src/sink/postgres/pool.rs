//! The connections: one for each lane that delivers at the moment, but at most [`CONNECTIONS`].
//!
//! Before the first statement the tables are checked and, if the settings allow it, created. The tables are checked again
//! after a statement that did not find them as expected.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};
use tracing::{info, warn};

use super::cells::{Parameter, parameters};
use super::effort::Effort;
use super::refusal::{self, StatementRefusal};
use super::statements::{CursorForms, Statements};
use super::table::{DatabaseProperties, SchemaChanges};
use crate::settings::PostgresSettings;
use crate::table::{quoted, without_row};
use crate::{LaneRef, Position, SinkError};
use net::postgres::{
    ANSWER_TIMEOUT, Connector, DatabaseError, OnNotification, OpenConnection, answered, answered_within,
};
use net::tasks::{joined, lock};
use proof::event::Offset;

/// The maximum number of lanes that deliver at the same time. Each such lane has a connection for a whole delivery.
const CONNECTIONS: usize = 4;

/// How long a change of the tables waits for each lock: the lock of a table, behind which all other users of the table wait
/// meanwhile, or the advisory lock, which another instance may have. A change that did not get its lock has ended at the
/// server, so the attempts do not accumulate there.
const LOCK_TIMEOUT: &str = "5s";

/// The advisory lock under which one instance at a time changes the tables.
const LOCK: i64 = 0x6368_616e_7461_626c;

pub(super) struct Pool {
    /// The configuration table of this sink, for messages.
    at: String,
    pub(super) settings: PostgresSettings,
    pub(super) statements: Statements,
    connector: Arc<Connector>,
    turns: Semaphore,
    idle: Mutex<Vec<OpenConnection>>,
    /// Whether the tables are known to be complete. Reset after a statement that failed. Locked while the tables are
    /// checked and changed, so that this happens once for all lanes.
    is_ready: tokio::sync::Mutex<bool>,
    /// Why the server acknowledges events before they are on its disk, as it said last.
    early_acks: Mutex<Vec<String>>,
    /// Whether statements move the cursors of consumers. True if this instance serves the feed, or if the role may move the cursors of
    /// another instance's feed. Each takeover of a lane checks this again, and a restored table makes a lane begin with a takeover.
    moves_cursors: AtomicBool,
    /// Whether it was reported that the role may not move the cursors of consumers.
    has_warned: AtomicBool,
    /// Whether one connection has reached several server processes.
    pub(super) is_pooled: AtomicBool,
    /// The size and the time limit of the next statement.
    pub(super) effort: Effort,
}

/// A connection borrowed from the pool. When it is dropped, it returns to the pool unless a statement is unanswered.
pub(super) struct Borrowed<'p> {
    pub(super) pool: &'p Pool,
    /// `None` after it was returned.
    open: Option<OpenConnection>,
    /// How many statements the server has not answered, as far as is known.
    unanswered: AtomicUsize,
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(name: &str, settings: PostgresSettings) -> Result<Self, SinkError> {
        let at = format!("sinks.{name}");
        let connector = Connector::new(&settings.server)
            .map_err(|error| SinkError::unusable(format!("{at}.url: no certificate can be checked: {error}")))?;
        Ok(Self {
            at,
            statements: Statements::of(&settings),
            connector: Arc::new(connector),
            turns: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
            is_ready: tokio::sync::Mutex::default(),
            early_acks: Mutex::default(),
            moves_cursors: AtomicBool::new(settings.feed),
            has_warned: AtomicBool::default(),
            is_pooled: AtomicBool::default(),
            effort: Effort::default(),
            settings,
        })
    }

    /// The form of a statement to execute.
    pub(super) fn form<'s>(&self, CursorForms { moving, plain }: &'s CursorForms) -> &'s str {
        if self.moves_cursors.load(Ordering::Relaxed) { moving } else { plain }
    }

    /// Remembers whether the role may move the cursors of consumers. `None` if their table does not exist.
    pub(super) fn remember_cursors(&self, may_move: Option<bool>) {
        let serves_feed = self.settings.feed;
        self.moves_cursors.store(serves_feed || may_move == Some(true), Ordering::Relaxed);
        if may_move == Some(false) && !serves_feed && !self.has_warned.swap(true, Ordering::Relaxed) {
            let consumers = self.settings.consumers_of_any_feed();
            warn!(
                sink = self.at,
                consumers,
                "a feed has consumers in this table, and the role may not move their cursors: after a restore from a backup, consumers would miss events that are delivered again; grant select and update on the table of consumers to the role"
            );
        }
    }

    /// Waits for a connection. Checks the tables and adds what they lack, unless that was already done.
    pub(super) async fn borrow(&self) -> Result<Borrowed<'_>, SinkError> {
        let mut borrowed = self.borrow_unprepared().await?;
        let mut is_ready = self.is_ready.lock().await;
        if !*is_ready && let Some(open) = borrowed.open.take() {
            borrowed.open = Some(self.prepare(open).await?);
            *is_ready = true;
        }
        Ok(borrowed)
    }

    /// Waits for a connection like [`borrow`](Self::borrow), but does not check or change the tables.
    pub(super) async fn borrow_unprepared(&self) -> Result<Borrowed<'_>, SinkError> {
        let permit = self.turns.acquire().await.expect("it is never closed");
        let idle = {
            let mut idle = lock(&self.idle);
            idle.retain(|open| !open.client.is_closed());
            idle.pop()
        };
        let open = match idle {
            Some(open) => open,
            None => self.connector.connect().await.map_err(|error| self.away(&error))?,
        };
        Ok(Borrowed { pool: self, open: Some(open), unanswered: AtomicUsize::new(0), _permit: permit })
    }

    /// Opens a connection that calls `notified` for each notification. It does not belong to the pool.
    pub(super) async fn listening(&self, notified: &OnNotification) -> Result<OpenConnection, DatabaseError> {
        let open = self.connector.connect_notified(notified).await?;
        let listen = format!("listen {}", quoted(&self.settings.feed_channel()));
        answered(open.client.batch_execute(&listen)).await?;
        Ok(open)
    }

    /// The state of the tables, and the SQL that adds what they lack.
    pub(super) async fn look(&self, open: &OpenConnection) -> Result<(DatabaseProperties, SchemaChanges), SinkError> {
        let seen = DatabaseProperties::look(&open.client, &self.settings).await.map_err(|error| self.away(&error))?;
        *lock(&self.early_acks) = seen.early_acks();
        let missing = seen.missing(&self.settings, &self.at).map_err(SinkError::unusable)?;
        Ok((seen, missing))
    }

    /// Why the server acknowledges events before they are on its disk. `None` if it does not, or before the first
    /// connection.
    pub(super) fn early_ack(&self) -> Option<String> {
        let early_acks = lock(&self.early_acks);
        (!early_acks.is_empty()).then(|| early_acks.join("; "))
    }

    fn away(&self, error: &DatabaseError) -> SinkError {
        refusal::of_connection(error, &self.settings.server, &self.at)
    }

    /// Completes the tables. An old key of the table is dropped in its own transaction, after the new key was found in the
    /// table: creating the new key may take long, and dropping the old key waits for readers.
    async fn prepare(&self, mut open: OpenConnection) -> Result<OpenConnection, SinkError> {
        let (_, missing) = self.look(&open).await?;
        for changes in [missing.made, missing.indexed].into_iter().filter(|changes| !changes.is_empty()) {
            open = self.run(open, changes).await?;
        }
        if missing.dropped.is_empty() {
            return Ok(open);
        }
        let (_, missing) = self.look(&open).await?;
        if missing.made.is_empty() && missing.indexed.is_empty() {
            self.run(open, missing.dropped).await
        } else {
            Err(SinkError::away(format!(
                "the tables are still incomplete: retrying; the remaining changes: {}",
                missing.all()
            )))
        }
    }

    /// Runs statements that change the tables, as one transaction. If the transaction takes longer than the answer timeout,
    /// for example because it creates an index on a large table, this method returns an error, and the transaction
    /// continues.
    async fn run(&self, open: OpenConnection, statements: String) -> Result<OpenConnection, SinkError> {
        info!(sink = self.at, statements, "changing the tables");
        // Several statements in one text are one transaction.
        let statements =
            format!("select set_config('lock_timeout', '{LOCK_TIMEOUT}', true); {}", changing(&statements));
        let mut running = tokio::spawn(async move { (open.client.batch_execute(&statements).await, open) });
        let Ok(done) = timeout(ANSWER_TIMEOUT, &mut running).await else {
            let what =
                "the tables are being changed, which takes long if they have many rows: retrying until this is done";
            return Err(SinkError::away(what.to_owned()));
        };
        let (made, open) = joined(done).await;
        made.map(|()| open).map_err(|error| self.unchanged(&DatabaseError::Server(error)))
    }

    /// Why the tables could not be changed.
    pub(super) fn unchanged(&self, error: &DatabaseError) -> SinkError {
        match error {
            DatabaseError::Server(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => SinkError::away(
                format!("the tables have to be changed, and are locked by another session: retrying ({error})"),
            ),
            error => refusal::of_statement(error, &self.settings.server, &self.at).error,
        }
    }
}

/// Statements that change the tables, for one instance at a time.
pub(super) fn changing(statements: &str) -> String {
    format!("select pg_advisory_xact_lock({LOCK}); {statements}")
}

impl Borrowed<'_> {
    /// The lane's position and epoch.
    pub(super) async fn row_of(&self, lane: &LaneRef) -> Result<(Position, i64), StatementRefusal> {
        let parameters = parameters![lane.channel.id.0 => UUID, &*lane.sink => TEXT];
        let rows = self.query(&self.pool.statements.position, &parameters).await?;
        let through = |row: &Row| row.get::<_, Option<i64>>(0).and_then(Offset::new);
        Ok(match rows.first() {
            Some(row) => (Position::At(through(row)), row.get(1)),
            None => (Position::Missing(without_row(&self.pool.settings.progress_name())), 0),
        })
    }

    pub(super) async fn query(
        &self,
        statement: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, StatementRefusal> {
        self.answer(self.send(statement, parameters)).await
    }

    /// Does `work` in a transaction that is rolled back. Checks the deferred constraints before. If the transaction cannot be
    /// ended, or the future is dropped, the connection is not used again.
    pub(super) async fn rolled_back<T>(
        &self,
        work: impl Future<Output = Result<T, StatementRefusal>>,
    ) -> Result<T, StatementRefusal> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.query("begin", &[]).await?;
        let done = async {
            let done = work.await?;
            self.query("set constraints all immediate", &[]).await.map(|_| done)
        };
        let done = done.await;
        if done.as_ref().err().is_none_or(StatementRefusal::may_be_of_one_row) {
            self.query("rollback", &[]).await?;
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        done
    }

    /// Executes a statement and returns its rows, without a timeout. The first poll sends the statement. The server executes
    /// statements in the order in which they are sent.
    pub(super) async fn send(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let answer = self.open().client.query_typed(statement, parameters).await;
        if answer.as_ref().err().is_none_or(|error| error.as_db_error().is_some()) {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
        }
        answer
    }

    /// Waits for an answer, up to the current limit. Converts an error into a [`StatementRefusal`].
    pub(super) async fn answer<T>(&self, sent: impl Future<Output = Result<T, Error>>) -> Result<T, StatementRefusal> {
        let wait = self.pool.effort.wait();
        match answered_within(wait, sent).await {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(error, wait).await),
        }
    }

    /// Executes statements without parameters. The first one is `begin`.
    ///
    /// From now on, the connection does not return to the pool, so that nothing else joins its transaction.
    pub(super) async fn begin(&self, statements: &str) -> Result<(), StatementRefusal> {
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        self.execute(statements).await
    }

    /// Executes statements without parameters.
    pub(super) async fn execute(&self, statements: &str) -> Result<(), StatementRefusal> {
        self.answer(self.open().client.batch_execute(statements)).await
    }

    /// Like [`execute`](Self::execute), and returns the error itself.
    pub(super) async fn attempt(&self, statements: &str) -> Result<(), DatabaseError> {
        answered_within(self.pool.effort.wait(), self.open().client.batch_execute(statements)).await
    }

    async fn failed(&self, error: DatabaseError, waited: Duration) -> StatementRefusal {
        let pool = self.pool;
        if refusal::is_timeout(&error) {
            pool.effort.timed_out(waited);
        }
        if !matches!(&error, DatabaseError::Server(error) if error.as_db_error().is_some()) {
            // The other connections lead to the same server, which may have failed.
            lock(&pool.idle).clear();
        }
        *pool.is_ready.lock().await = false;
        refusal::of_statement(&error, &pool.settings.server, &pool.at)
    }

    pub(super) fn open(&self) -> &OpenConnection {
        self.open.as_ref().expect("only dropping it returns the connection")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        if *self.unanswered.get_mut() == 0 {
            lock(&self.pool.idle).push(open);
            return;
        }
        // The statement may be waiting for a lock. The server does not notice that the connection is closed, so each further
        // attempt would add one more waiting server process.
        let connector = self.pool.connector.clone();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { connector.cancel(&open).await });
        }
    }
}
