//! A connection to the state's database.
//!
//! A connection is opened when it is needed, and opened again after any error. Statements are unnamed, and each is its own
//! transaction, because a pooler may send each of them to a different server process.
//!
//! # Invariants
//!
//! * **Bounded.** A statement that is not answered in time is cancelled at the server. Otherwise each retry of a statement that
//!   waits for a lock would leave one more waiting server process.
//! * **Visible.** Each statement that waits for its tables is known to [`Waits`].
//!
//! # Cancellation
//!
//! A statement whose future is dropped may still be executed, but is cancelled if it is not answered in time. The server may
//! execute a statement although it was asked to cancel it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::schema::Schema;
use super::sql;
use super::waits::Waits;
use crate::StateError;
use crate::store::PostgresSettings;
use net::Chain;
use net::postgres::{Connector, DatabaseError, OpenConnection, answered_within};
use net::tasks::lock;

/// How long a migration may take at the server. Nobody waits that long for it: it continues, and a later attempt finds it applied.
const MIGRATION: Duration = Duration::from_secs(300);

/// A value, and its type in the database.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

#[derive(Debug)]
pub(super) struct Connection {
    link: Arc<Link>,
    pub(super) schema: Arc<Schema>,
    waits: Arc<Waits>,
    /// How long a statement may take.
    limit: Duration,
    /// The tasks that cancel statements whose futures were dropped.
    cancelling: Mutex<JoinSet<()>>,
    /// Whether the connection has a transaction that will be rolled back. Nothing may be executed on another connection.
    is_rehearsal: bool,
}

#[derive(Debug)]
struct Link {
    connector: Connector,
    open: tokio::sync::Mutex<Option<Arc<OpenConnection>>>,
}

/// A statement that was sent. If this value is dropped before the statement is over, for example because nobody waits for the
/// answer anymore, the statement is cancelled at its deadline.
struct SentStatement<'c> {
    connection: &'c Connection,
    open: Arc<OpenConnection>,
    deadline: Instant,
    is_over: bool,
}

impl Connection {
    pub(super) fn new(
        settings: &PostgresSettings,
        schema: &Arc<Schema>,
        waits: &Arc<Waits>,
        limit: Duration,
    ) -> Result<Self, StateError> {
        let link = Arc::new(Link { connector: connector(settings)?, open: tokio::sync::Mutex::default() });
        Ok(Self {
            link,
            schema: schema.clone(),
            waits: waits.clone(),
            limit,
            cancelling: Mutex::default(),
            is_rehearsal: false,
        })
    }

    /// Uses only this open connection, which has a transaction that will be rolled back. Nothing uses this value yet.
    pub(super) fn rehearse_on(&mut self, open: &Arc<OpenConnection>) {
        let link = Arc::get_mut(&mut self.link).expect("nothing uses it yet");
        link.open = tokio::sync::Mutex::new(Some(open.clone()));
        self.is_rehearsal = true;
    }

    pub(super) async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StateError> {
        if self.is_rehearsal && !self.link.is_open().await {
            return Err(StateError::Closed);
        }
        let running = self.waits.begin(sql::tables(statement));
        let answer = self.answer(statement, parameters).await;
        running.end(answer.as_ref().err().map(|error| Chain(error).to_string()));
        answer
    }

    async fn answer(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StateError> {
        let open = self.open().await?;
        let sent = self.sent(&open, self.limit);
        let answer =
            answered_within(self.limit, open.client.query_typed(&self.schema.statement(statement), parameters)).await;
        if let Err(error) = &answer {
            if let DatabaseError::Silent(_) = error {
                self.link.connector.cancel(&open).await;
            }
            self.link.close(&open).await;
        }
        sent.end();
        Ok(answer?)
    }

    /// Connects, checks that this is the state of this instance, and brings the schema up to date.
    async fn open(&self) -> Result<Arc<OpenConnection>, StateError> {
        let mut slot = self.link.open.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        let open = Arc::new(self.link.connector.connect().await?);
        let sent = self.sent(&open, if self.schema.is_ready() { self.limit } else { MIGRATION });
        self.schema.prepare(&open.client).await?;
        sent.end();
        *slot = Some(open.clone());
        Ok(open)
    }

    fn sent(&self, open: &Arc<OpenConnection>, limit: Duration) -> SentStatement<'_> {
        SentStatement { connection: self, open: open.clone(), deadline: Instant::now() + limit, is_over: false }
    }

    /// Cancels the statement that was sent last, unless it is answered before the deadline. Other statements on the same
    /// connection need no special care: they wait behind it, and are repeated on a new connection.
    fn cancel_after(&self, deadline: Instant, open: Arc<OpenConnection>) {
        // Without a runtime, the process is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        let link = self.link.clone();
        let mut cancelling = lock(&self.cancelling);
        while cancelling.try_join_next().is_some() {}
        cancelling.spawn_on(
            async move {
                // The server answers in the order of the statements, so an answer to this one means that the earlier
                // statement has ended.
                if timeout_at(deadline, open.client.batch_execute("")).await.is_err() {
                    link.connector.cancel(&open).await;
                    link.close(&open).await;
                }
            },
            &runtime,
        );
    }
}

impl Link {
    async fn is_open(&self) -> bool {
        self.open.lock().await.as_ref().is_some_and(|open| !open.client.is_closed())
    }

    /// Closes the connection. The next statement connects again, perhaps to a server that has taken over.
    async fn close(&self, failed: &Arc<OpenConnection>) {
        let mut slot = self.open.lock().await;
        slot.take_if(|open| Arc::ptr_eq(open, failed));
    }
}

impl SentStatement<'_> {
    /// Records that the statement was answered or cancelled.
    fn end(mut self) {
        self.is_over = true;
    }
}

impl Drop for SentStatement<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.cancel_after(self.deadline, self.open.clone());
        }
    }
}

pub(super) fn connector(settings: &PostgresSettings) -> Result<Connector, StateError> {
    Connector::new(&settings.server)
        .map_err(|error| StateError::Unusable(format!("state.url: no certificate can be checked: {error}")))
}
