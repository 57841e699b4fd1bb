//! A connection to the state's database. It is opened when it is needed, and opened again after any error.
//!
//! Statements are unnamed, and each is its own transaction, because a pooler may send each of them to a different
//! server process.
//!
//! # Cancellation
//!
//! A statement whose future is dropped may still be executed. The same is true for a statement that timed out, although
//! the server is asked to cancel it. Every statement explains why a delayed copy does no harm.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::schema::Schema;
use crate::StateError;
use crate::store::database::PostgresSettings;
use net::postgres::{Connector, DatabaseError, Open, answered};

/// A value, and its type in the database.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connection.
#[derive(Debug)]
pub(super) struct Connection {
    connector: Connector,
    pub(super) schema: Arc<Schema>,
    open: Mutex<Option<Arc<Open>>>,
}

impl Connection {
    /// Does not connect yet.
    pub(super) fn new(settings: &PostgresSettings, schema: &Arc<Schema>) -> Result<Self, StateError> {
        let connector = Connector::new(&settings.server)
            .map_err(|error| StateError::Unusable(format!("state.url: no certificate can be checked: {error}")))?;
        Ok(Self { connector, schema: schema.clone(), open: Mutex::default() })
    }

    /// Runs a statement and returns its rows.
    pub(super) async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StateError> {
        let open = self.open().await?;
        let answer = answered(open.client.query_typed(statement, parameters)).await;
        if let Err(DatabaseError::Silent(_)) = answer {
            // The statement may wait for a lock. Without the cancellation, each retry would leave one more waiting
            // server process.
            self.connector.cancel(&open).await;
        }
        if answer.is_err() {
            self.close(&open).await;
        }
        Ok(answer?)
    }

    /// Connects, checks that this is the state of this instance, and brings the schema up to date.
    async fn open(&self) -> Result<Arc<Open>, StateError> {
        let mut slot = self.open.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        let open = Arc::new(self.connector.connect().await?);
        self.schema.prepare(&open.client).await?;
        *slot = Some(open.clone());
        Ok(open)
    }

    /// A separate connection that has not changed anything.
    pub(super) async fn look(&self) -> Result<Open, StateError> {
        Ok(self.connector.connect().await?)
    }

    /// Closes the connection. The next statement connects again, perhaps to a server that has taken over.
    async fn close(&self, failed: &Arc<Open>) {
        let mut slot = self.open.lock().await;
        slot.take_if(|open| Arc::ptr_eq(open, failed));
    }
}
