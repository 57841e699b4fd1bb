//! A connection to the state's database that is made when it is needed, and again after any error.
//!
//! Statements are unnamed and each is a transaction of its own: a pooler may send every one of them to another server
//! process.
//!
//! # Cancellation
//!
//! A statement whose future is dropped may still be carried out. So may one that has had no answer in time, although the server
//! is asked to cancel it: every statement says why a late copy of it does no harm.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::schema::Schema;
use super::{PostgresSettings, StateError};
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
    /// Nothing is connected yet.
    pub(super) fn new(settings: &PostgresSettings, schema: &Arc<Schema>) -> Result<Self, StateError> {
        let connector = Connector::new(&settings.server)
            .map_err(|error| StateError::Unusable(format!("state.url: no certificate can be checked: {error}")))?;
        Ok(Self { connector, schema: schema.clone(), open: Mutex::default() })
    }

    /// The rows that a statement gives.
    pub(super) async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StateError> {
        let open = self.open().await?;
        let answer = answered(open.client.query_typed(statement, parameters)).await;
        if let Err(DatabaseError::Silent(_)) = answer {
            // It may wait for a lock. Without this, each retry would leave one more process of the server waiting.
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

    /// A connection of its own, by which nothing has been changed yet.
    pub(super) async fn look(&self) -> Result<Open, StateError> {
        Ok(self.connector.connect().await?)
    }

    /// The next statement connects anew, perhaps to the server that has taken over.
    async fn close(&self, failed: &Arc<Open>) {
        let mut slot = self.open.lock().await;
        slot.take_if(|open| Arc::ptr_eq(open, failed));
    }
}
