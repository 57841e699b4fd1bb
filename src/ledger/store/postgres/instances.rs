//! The instances, the owners of channels, and the requests between instances, as recorded in the database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{Postgres, sql};
use crate::StateError;
use crate::rules::decode;
use crate::store::shared::{
    ClusterView, ForwardedRequest, ForwardedResponse, Instance, InstanceId, LeaseTerm, Membership, Ownership,
    RequestId, RequestState,
};
use net::Chain;
use net::postgres::bigint;
use net::tasks::lock;
use proof::event::ChannelId;

/// How long received requests are remembered. A request can be taken only in the first minute after it was sent.
const REMEMBERED: Duration = Duration::from_secs(120);

#[async_trait]
impl Membership for Postgres {
    fn me(&self) -> InstanceId {
        self.me
    }

    fn lease(&self) -> Duration {
        self.settings.lease
    }

    fn term(&self) -> &LeaseTerm {
        &self.term
    }

    async fn beat(&self, channels: &Arc<BTreeSet<ChannelId>>) -> Result<ClusterView, StateError> {
        let began = LeaseTerm::now();
        let configuration = digest(channels);
        lock(&self.configurations).insert(configuration.clone(), channels.clone());
        let parameters = [(&self.me as _, Type::UUID), (&configuration as _, Type::BYTEA)];
        if self.board.query(sql::BEAT, &parameters).await?.is_empty() {
            self.join(&configuration, channels).await?;
        }
        let view = self.view().await?;
        self.note_losses(&view);
        self.term.prolong(began, self.settings.lease);
        Ok(view)
    }

    fn has_claimed(&self, channel: ChannelId) -> bool {
        lock(&self.claimed).contains_key(&channel)
    }

    async fn give_up(&self, channels: &BTreeMap<ChannelId, u64>) -> Result<(), StateError> {
        let (ids, epochs): (Vec<_>, Vec<_>) =
            channels.iter().map(|(channel, epoch)| (channel.0, bigint(*epoch))).unzip();
        let parameters = [(&self.me as _, Type::UUID), (&ids as _, Type::UUID_ARRAY), (&epochs as _, Type::INT8_ARRAY)];
        self.commits.query(sql::RELEASE, &parameters).await.map(drop)
    }

    fn lose_all(&self) {
        self.term.end();
        for (_, claimed) in lock(&self.claimed).drain() {
            claimed.lease.lost.cancel();
        }
    }

    async fn leave(&self) {
        self.lose_all();
        if let Err(error) = self.board.query(sql::LEAVE, &[(&self.me as _, Type::UUID)]).await {
            warn!(error = %Chain(&error), "the leases of the channels could not be released: other instances take over when they expire");
        }
    }

    async fn ask(&self, instance: InstanceId, request: &ForwardedRequest) -> Result<RequestId, StateError> {
        let parameters = [
            (&instance as _, Type::UUID),
            (&request.method as _, Type::TEXT),
            (&request.path as _, Type::TEXT),
            (&request.body as _, Type::BYTEA),
        ];
        let rows = self.board.query(sql::ASK, &parameters).await?;
        let id = rows.first().map(|row| row.get(0));
        id.ok_or_else(|| StateError::Damaged("a request that was written has no number".to_owned()))
    }

    async fn look(&self, request: RequestId, withdraw: bool) -> Result<RequestState, StateError> {
        if !withdraw {
            let rows = self.board.query(sql::LOOK, &[(&request as _, Type::INT8)]).await?;
            let is_over = rows.first().is_some_and(|row| answer_of(row).is_some() || row.get(3));
            if !is_over {
                return Ok(RequestState::Waiting);
            }
            if let Some(answer) = rows.first().and_then(answer_of) {
                // The request is no longer needed. If the withdrawal fails, the request is removed after a minute.
                let _ = self.board.query(sql::WITHDRAW, &[(&request as _, Type::INT8)]).await;
                return Ok(RequestState::Answered(answer));
            }
        }
        let rows = self.board.query(sql::WITHDRAW, &[(&request as _, Type::INT8)]).await?;
        Ok(match rows.first() {
            Some(row) => answer_of(row).map_or(RequestState::Ended { taken: row.get(0) }, RequestState::Answered),
            // An earlier withdrawal has ended the request, but its answer was lost.
            None => RequestState::Ended { taken: true },
        })
    }

    async fn take(&self) -> Result<Vec<(RequestId, ForwardedRequest)>, StateError> {
        let received: Vec<RequestId> = {
            let mut received = lock(&self.received);
            received.retain(|_, since| since.elapsed() < REMEMBERED);
            received.keys().copied().collect()
        };
        let parameters = [(&self.me as _, Type::UUID), (&received as _, Type::INT8_ARRAY)];
        let rows = self.board.query(sql::TAKE, &parameters).await?;
        let asked =
            |row: &Row| (row.get(0), ForwardedRequest { method: row.get(1), path: row.get(2), body: row.get(3) });
        let mut received = lock(&self.received);
        let mut is_new = |request: &(RequestId, ForwardedRequest)| received.insert(request.0, Instant::now()).is_none();
        Ok(rows.iter().map(asked).filter(|request| is_new(request)).collect())
    }

    async fn answer(&self, request: RequestId, answer: &ForwardedResponse) -> Result<(), StateError> {
        let status = i32::from(answer.status);
        let parameters = [(&request as _, Type::INT8), (&status as _, Type::INT4), (&answer.body as _, Type::BYTEA)];
        self.board.query(sql::ANSWER, &parameters).await.map(drop)
    }
}

impl Postgres {
    /// Registers this instance and its configured channels. The list can be long, so normal heartbeats omit it.
    async fn join(&self, configuration: &[u8], channels: &BTreeSet<ChannelId>) -> Result<(), StateError> {
        let ids: Vec<_> = channels.iter().map(|channel| channel.0).collect();
        let lease = self.settings.lease.as_secs_f64();
        // A heartbeat was sent before, so a connection exists.
        let known = self.schema().known();
        let parameters = [
            (&self.me as _, Type::UUID),
            (&self.settings.instance as _, Type::TEXT),
            (&lease as _, Type::FLOAT8),
            (&configuration as _, Type::BYTEA),
            (&ids as _, Type::UUID_ARRAY),
            (&known as _, Type::UUID),
        ];
        if self.board.query(sql::JOIN, &parameters).await?.is_empty() {
            let rows = self.board.query(sql::WHICH, &[]).await?;
            let id = rows.first().map(|row| row.get(0));
            self.schema().check(id.unwrap_or_default(), false).await?;
        }
        Ok(())
    }

    async fn view(&self) -> Result<ClusterView, StateError> {
        let instances = self.board.query(sql::INSTANCES, &[]).await?;
        self.learn(&instances).await?;
        let ownership = self.board.query(sql::OWNERSHIP, &[]).await?;
        let known = lock(&self.configurations);
        let instance = |row: &Row| {
            let channels = known.get(row.get::<_, &[u8]>(2)).cloned().unwrap_or_default();
            (row.get(0), Instance { name: row.get(1), channels })
        };
        let owner = |row: &Row| {
            let owned = row
                .get::<_, Option<Uuid>>(2)
                .map(|by| Ownership::Owned { by, epoch: row.get::<_, i64>(1).unsigned_abs() });
            let since = || Duration::try_from_secs_f64(row.get(3)).unwrap_or_default();
            (ChannelId(row.get(0)), owned.unwrap_or_else(|| Ownership::Orphaned { since: since() }))
        };
        let held_back = ownership.iter().filter_map(|row| Some((row.get(0), row.get::<_, Option<&[u8]>>(4)?)));
        let held_back = held_back.map(|(channel, value)| Ok((ChannelId(channel), decode(value)?)));
        Ok(ClusterView {
            held_back: held_back.collect::<Result<_, StateError>>()?,
            instances: instances.iter().map(instance).collect(),
            channels: ownership.iter().map(owner).collect(),
        })
    }

    /// Reads the configurations that are not cached yet, and drops configurations that no instance uses anymore.
    async fn learn(&self, instances: &[Row]) -> Result<(), StateError> {
        let missing: Vec<Uuid> = {
            let mut known = lock(&self.configurations);
            known.retain(|digest, _| instances.iter().any(|row| row.get::<_, &[u8]>(2) == digest));
            let missing = instances.iter().filter(|row| !known.contains_key(row.get::<_, &[u8]>(2)));
            missing.map(|row| row.get(0)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let rows = self.board.query(sql::CONFIGURATIONS, &[(&missing as _, Type::UUID_ARRAY)]).await?;
        let mut known = lock(&self.configurations);
        for row in rows {
            let channels: BTreeSet<_> = row.get::<_, Vec<Uuid>>(1).into_iter().map(ChannelId).collect();
            known.insert(digest(&channels), Arc::new(channels));
        }
        Ok(())
    }

    fn note_losses(&self, view: &ClusterView) {
        lock(&self.claimed).retain(|channel, claimed| {
            let epoch = claimed.lease.epoch;
            let is_ours = match view.channels.get(channel) {
                // A claim that was made during this read is newer than the view.
                Some(Ownership::Owned { by, epoch: seen }) => *seen < epoch || (*by == self.me && *seen == epoch),
                Some(Ownership::Orphaned { .. }) | None => true,
            };
            if !is_ours {
                debug!(%channel, "another instance owns the channel");
                claimed.lease.lost.cancel();
            }
            is_ours
        });
    }
}

fn digest(channels: &BTreeSet<ChannelId>) -> Vec<u8> {
    let ids: Vec<u8> = channels.iter().flat_map(|channel| *channel.0.as_bytes()).collect();
    Sha256::digest(ids).to_vec()
}

fn answer_of(row: &Row) -> Option<ForwardedResponse> {
    let (status, body) = row.get::<_, Option<i32>>(1).zip(row.get::<_, Option<Vec<u8>>>(2))?;
    Some(ForwardedResponse { status: u16::try_from(status).unwrap_or(500), body })
}
