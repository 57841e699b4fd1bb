//! The rehearsal of an instance, for `channeld check --connect`: the store executes its own statements in a transaction that is
//! rolled back.
//!
//! # Invariants
//!
//! * **Nothing remains.** The transaction is never committed, and nothing is executed outside it.
//! * **No instance is disturbed.** The rehearsal has a channel and an instance of its own, waits only briefly for locks, and
//!   keeps its locks only for a moment, even if this process is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::schema::Schema;
use super::{Postgres, PostgresSettings, forget, sql};
use crate::rules::Summary;
use crate::store::shared::{Configured, ForwardedRequest, ForwardedResponse, Membership};
use crate::store::{CommitOutcome, Lease, Store};
use crate::{Effects, Key, Proof, StateError};
use net::postgres::{OpenConnection, answered};
use proof::event::{ChannelId, EventKey, Offset};

/// Ends the transaction at the server if this process does not continue it.
const BEGIN: &str = "begin; set local lock_timeout = '2s'; set local idle_in_transaction_session_timeout = '10s'";

/// How long the missing migrations may take. Meanwhile, running instances of an older version wait for the tables.
pub(super) const MIGRATIONS_LIMIT: &str = "3s";

/// Applies the missing migrations, and executes the statements of an instance. `known` is the id of the state, if it is known.
/// Returns false if the migrations take too long to be rehearsed.
pub(super) async fn rehearse(
    settings: &PostgresSettings,
    open: OpenConnection,
    known: Option<Uuid>,
) -> Result<bool, StateError> {
    let open = Arc::new(open);
    answered(open.client.batch_execute(BEGIN)).await?;
    let rehearsed = rehearse_in_transaction(settings, &open, known).await;
    // Closing the connection rolls the transaction back too, but a little later.
    let _ = answered(open.client.batch_execute("rollback")).await;
    rehearsed
}

async fn rehearse_in_transaction(
    settings: &PostgresSettings,
    open: &Arc<OpenConnection>,
    known: Option<Uuid>,
) -> Result<bool, StateError> {
    let schema = Schema::new(&settings.schema).knowing(known);
    answered(open.client.batch_execute(&format!("set local statement_timeout = '{MIGRATIONS_LIMIT}'"))).await?;
    match schema.prepare(&open.client).await {
        Err(error) if error.of_server().is_some_and(|said| *said.code() == SqlState::QUERY_CANCELED) => {
            return Ok(false);
        }
        prepared => prepared?,
    }
    answered(open.client.batch_execute("set local statement_timeout to default")).await?;
    Postgres::over(settings.clone(), schema)?.rehearsing(open).run_through().await?;
    // The tables can have constraints and triggers that are deferred to the end of a transaction.
    answered(open.client.batch_execute("set constraints all immediate")).await?;
    Ok(true)
}

impl Postgres {
    /// Uses only this connection, in whose transaction everything is executed.
    fn rehearsing(mut self, open: &Arc<OpenConnection>) -> Self {
        let upkeep = Arc::get_mut(&mut self.upkeep).expect("no task uses it yet");
        for connection in [&mut self.commits, &mut self.board, &mut self.requests, &mut self.proofs, upkeep] {
            connection.rehearse_on(open);
        }
        // No task may forget proofs beside the rehearsal.
        self.noted = Arc::default();
        self
    }

    /// Executes each statement of an instance, from its first heartbeat until it leaves.
    async fn run_through(&self) -> Result<(), StateError> {
        let channel = ChannelId(Uuid::new_v4());
        self.beat(&Arc::new(Configured { channels: BTreeSet::from([channel]), ..Configured::default() }), &[]).await?;
        let (lease, _) = self.claim(channel).await?.ok_or_else(hidden)?;
        self.run_through_ledger(&lease).await?;
        self.run_through_proofs(channel).await?;
        self.run_through_requests().await?;
        self.channels().await?;
        self.give_up(&BTreeMap::from([(channel, lease.epoch)])).await?;
        self.board.query(sql::LEAVE, &[(&self.me as _, Type::UUID)]).await.map(drop)
    }

    async fn run_through_ledger(&self, lease: &Lease) -> Result<(), StateError> {
        let key = Key::Body(EventKey { offset: Offset::ZERO, id: None });
        for (version, value) in [(1, Some(Bytes::from_static(b"{}"))), (2, None)] {
            let summary = Summary { version, ..Summary::default() };
            let effects = Effects { changes: vec![(key.clone(), value)], summary };
            match self.commit(Arc::new(vec![(lease.clone(), effects)])).await.pop() {
                Some(CommitOutcome::Ok) => {}
                Some(CommitOutcome::Unavailable(error) | CommitOutcome::Fatal(error)) => return Err(error),
                Some(CommitOutcome::Lost(_)) | None => return Err(hidden()),
            }
            self.entries(lease.channel).await?;
            self.body(lease.channel, key.clone()).await?;
        }
        Ok(())
    }

    async fn run_through_proofs(&self, channel: ChannelId) -> Result<(), StateError> {
        let digest = *Uuid::new_v4().as_bytes();
        self.show(channel, &[Proof { digest, offset: Offset::ZERO }]).await?;
        forget(&self.upkeep, 1).await
    }

    async fn run_through_requests(&self) -> Result<(), StateError> {
        let request = ForwardedRequest { method: "GET".to_owned(), path: "/".to_owned(), body: Vec::new() };
        let id = self.ask(self.me, &request).await?;
        self.look(id, false).await?;
        self.take().await?;
        self.answer(id, &ForwardedResponse { status: 200, body: Vec::new() }).await?;
        self.look(id, true).await.map(drop)
    }
}

/// The error if a row that was just written cannot be found.
fn hidden() -> StateError {
    StateError::Unusable(
        "the tables do not keep rows as they were written: remove triggers, rules and row-level security from them"
            .to_owned(),
    )
}
