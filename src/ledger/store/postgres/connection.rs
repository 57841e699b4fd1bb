//! A connection to the database that is made when it is needed, and again after any error.
//!
//! Statements are unnamed and each is a transaction of its own: a pooler may send every one of them to another server
//! process.
//!
//! # Cancellation
//!
//! A statement whose future is dropped may still be carried out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::schema::Schema;
use super::{PostgresSettings, StateError};
use crate::http;

/// The longest wait for an answer: then the connection is taken for dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A value, and its type in the database.
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connection.
pub(super) struct Connection {
    server: tokio_postgres::Config,
    tls: MakeRustlsConnect,
    pub(super) schema: Arc<Schema>,
    open: Mutex<Option<Arc<Open>>>,
}

struct Open {
    client: Client,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    /// Nothing is connected yet.
    pub(super) fn new(settings: &PostgresSettings, schema: &Arc<Schema>) -> Result<Self, StateError> {
        let tls = http::database_tls(settings.authorities.as_ref(), settings.server.get_ssl_mode() != SslMode::Disable)
            .map_err(|error| StateError::Unusable(format!("state.url: no certificate can be checked: {error}")))?;
        Ok(Self {
            server: settings.server.clone(),
            tls: MakeRustlsConnect::new(tls),
            schema: schema.clone(),
            open: Mutex::default(),
        })
    }

    /// The rows that a statement gives.
    pub(super) async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, StateError> {
        let open = self.open().await?;
        let answer = match timeout(ANSWER_TIMEOUT, open.client.query_typed(statement, parameters)).await {
            Ok(answer) => answer.map_err(StateError::database),
            Err(_) => Err(StateError::database_silent(ANSWER_TIMEOUT)),
        };
        if answer.is_err() {
            self.close(&open).await;
        }
        answer
    }

    /// Connects, and brings the schema up to date, where that has not been done.
    async fn open(&self) -> Result<Arc<Open>, StateError> {
        let mut slot = self.open.lock().await;
        if let Some(open) = slot.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        let connecting = async {
            let (client, connection) = self.server.connect(self.tls.clone()).await.map_err(StateError::database)?;
            // Its error is that of every statement that waits for an answer.
            let driver = tokio::spawn(async { drop(connection.await) });
            let open = Open { client, _driver: AbortOnDropHandle::new(driver) };
            self.schema.prepare(&open.client).await?;
            Ok(open)
        };
        let connected = timeout(ANSWER_TIMEOUT, connecting).await;
        let open = Arc::new(connected.unwrap_or_else(|_| Err(StateError::database_silent(ANSWER_TIMEOUT)))?);
        *slot = Some(open.clone());
        Ok(open)
    }

    /// The next statement connects anew, perhaps to the server that has taken over.
    async fn close(&self, failed: &Arc<Open>) {
        let mut slot = self.open.lock().await;
        slot.take_if(|open| Arc::ptr_eq(open, failed));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}
