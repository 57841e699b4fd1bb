//! Runs a command on a state that instances share, if no daemon runs here. The command is an instance while it runs.
//!
//! It configures no channel, so it takes none from the other instances. It takes the lease of a channel that has no owner,
//! and releases it at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::cli::connect::configured;
use crate::cli::exit::{Exit, Failure};
use crate::config::Channel;
use crate::daemon::membership::Sharing;
use cluster::Peers;
use ledger::store::{PostgresSettings, Store};
use ledger::{Ledgers, StateError};
use net::Chain;
use operator::{Operations, Request};

/// How long the database may take to report the other instances.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Does `work` on a state that instances share, as one of them. `open` opens the state, and blocks.
pub(crate) async fn visit<T>(
    open: impl FnOnce() -> Result<Arc<dyn Store>, StateError> + Send + 'static,
    work: impl AsyncFnOnce(Arc<dyn Store>, Peers) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let opened = spawn_blocking(open).await;
    let opened = opened.unwrap_or_else(|panic| Err(StateError::Damaged(panic.to_string())));
    let store = opened.map_err(|error| failed(&Chain(&error).to_string()))?;
    let Some(membership) = store.clone().membership() else { return Err(failed("instances do not share it")) };
    let sharing = Sharing::begin(membership, [].into());
    let peers = sharing.peers.clone();
    let worked = match arrived(&peers).await {
        Ok(()) => work(store, peers).await,
        Err(failure) => Err(failure),
    };
    sharing.end().await;
    worked
}

/// Waits until the other instances are known.
async fn arrived(peers: &Peers) -> Result<(), Failure> {
    let mut seen = peers.seen.clone();
    let has_looked = seen.wait_for(|seen| seen.trouble.is_some() || !seen.view.instances.is_empty());
    match timeout(MAX_WAIT, has_looked).await {
        Ok(Ok(seen)) => seen.trouble.as_deref().map_or(Ok(()), |trouble| Err(failed(trouble))),
        _ => Err(failed(&format!("its database has not answered for {} s", MAX_WAIT.as_secs()))),
    }
}

/// Carries out a request, either here or through the instance that owns its channel.
pub(super) async fn ask<R: Request>(
    database: PostgresSettings,
    channels: &[Channel],
    request: &R,
) -> Result<R::Answer, Failure> {
    let carry_out = async |store, peers| {
        let (ledgers, handles, recent) = (Arc::new(Ledgers::over(store)), Arc::default(), Arc::default());
        let (cluster, channels) = (Some(peers), configured(channels));
        let version = crate::version::text();
        let operations = Operations { version, ledgers, handles, recent, daemon: None, cluster, channels };
        Ok(operations.carry_out(request).await?)
    };
    visit(move || database.open(None), carry_out).await
}

fn failed(why: &str) -> Failure {
    Failure(Exit::Failed, format!("the state cannot be reached: {why}"))
}
