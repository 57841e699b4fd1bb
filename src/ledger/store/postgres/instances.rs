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
use crate::rules::{decode, encode};
use crate::store::shared::{
    ClusterView, Configured, ForwardedRequest, ForwardedResponse, Instance, InstanceId, LeaseTerm, Membership,
    Ownership, RequestId, RequestState, SettingDigests, UnreadableRow,
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

    async fn beat(&self, configured: &Arc<Configured>, dead: &[InstanceId]) -> Result<ClusterView, StateError> {
        let began = LeaseTerm::now();
        let configuration = self.published(configured);
        let parameters =
            [(&self.me as _, Type::UUID), (&configuration as _, Type::BYTEA), (&dead as _, Type::UUID_ARRAY)];
        if self.board.query(sql::BEAT, &parameters).await?.is_empty() {
            self.join(&configuration, configured).await?;
        } else if !self.term.left().is_zero() {
            // The heartbeat was accepted before the term ended, so no instance has taken over a channel. The view may wait for
            // the table of channels, and must not cost the leases.
            self.term.prolong(began, self.settings.lease);
        }
        let view = self.view().await?;
        self.note_losses(&view);
        self.term.prolong(began, self.settings.lease);
        Ok(view)
    }

    fn has_claimed(&self, channel: ChannelId) -> bool {
        lock(&self.claimed).get(&channel).is_some_and(|claimed| !claimed.lease.lost.is_cancelled())
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
        let rows = self.requests.query(sql::ASK, &parameters).await?;
        let id = rows.first().map(|row| row.get(0));
        id.ok_or_else(|| StateError::Damaged("a request that was written has no number".to_owned()))
    }

    async fn look(&self, request: RequestId, withdraw: bool) -> Result<RequestState, StateError> {
        if !withdraw {
            let rows = self.requests.query(sql::LOOK, &[(&request as _, Type::INT8)]).await?;
            let is_over = rows.first().is_some_and(|row| answer_of(row).is_some() || row.get(3));
            if !is_over {
                return Ok(RequestState::Waiting);
            }
            if let Some(answer) = rows.first().and_then(answer_of) {
                // The request is no longer needed. If the withdrawal fails, the request is removed after a minute.
                let _ = self.requests.query(sql::WITHDRAW, &[(&request as _, Type::INT8)]).await;
                return Ok(RequestState::Answered(answer));
            }
        }
        let rows = self.requests.query(sql::WITHDRAW, &[(&request as _, Type::INT8)]).await?;
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
        let rows = self.requests.query(sql::TAKE, &parameters).await?;
        let asked =
            |row: &Row| (row.get(0), ForwardedRequest { method: row.get(1), path: row.get(2), body: row.get(3) });
        let mut received = lock(&self.received);
        let mut is_new = |request: &(RequestId, ForwardedRequest)| received.insert(request.0, Instant::now()).is_none();
        Ok(rows.iter().map(asked).filter(|request| is_new(request)).collect())
    }

    async fn answer(&self, request: RequestId, answer: &ForwardedResponse) -> Result<(), StateError> {
        let status = i32::from(answer.status);
        let parameters = [(&request as _, Type::INT8), (&status as _, Type::INT4), (&answer.body as _, Type::BYTEA)];
        self.requests.query(sql::ANSWER, &parameters).await.map(drop)
    }
}

impl Postgres {
    /// The key of this instance's configuration: a digest of the channels, and a digest of the settings. Older versions know
    /// only the first. The digests are computed only if the configuration has changed.
    fn published(&self, configured: &Arc<Configured>) -> Vec<u8> {
        let mut known = lock(&self.configurations);
        let found = known.iter().find(|(_, known)| Arc::ptr_eq(known, configured)).map(|(key, _)| key.clone());
        found.unwrap_or_else(|| {
            let Configured { channels, settings } = &**configured;
            let ids: Vec<u8> = channels.iter().flat_map(|channel| *channel.0.as_bytes()).collect();
            let key = [Sha256::digest(ids), Sha256::digest(encode(settings))].map(|digest| digest.to_vec()).concat();
            known.insert(key.clone(), configured.clone());
            key
        })
    }

    /// Registers this instance and its configuration. The configuration can be long, so normal heartbeats omit it.
    async fn join(&self, configuration: &[u8], configured: &Configured) -> Result<(), StateError> {
        let ids: Vec<_> = configured.channels.iter().map(|channel| channel.0).collect();
        let settings = encode(&configured.settings).to_vec();
        let (configuration, settings_digest) = configuration.split_at(Sha256::output_size());
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
            (&settings as _, Type::BYTEA),
            (&settings_digest as _, Type::BYTEA),
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
        let mut view = ClusterView::default();
        for row in &instances {
            let configured = known.get(row.get::<_, &[u8]>(2)).cloned().unwrap_or_default();
            let instance = Instance { name: row.get(1), joined: row.get(3), configured };
            let of = if row.get(4) { &mut view.instances } else { &mut view.silent };
            of.insert(row.get(0), instance);
        }
        let unreadable = lock(&self.unreadable);
        let live = instances.iter().filter(|row| row.get(4));
        view.unreadable = live.filter_map(|row| unreadable.get(row.get::<_, &[u8]>(2))).cloned().collect();
        for row in &ownership {
            view.add_channel(row);
        }
        Ok(view)
    }

    /// Reads the configurations that are not cached yet, and drops configurations that no instance uses anymore.
    async fn learn(&self, instances: &[Row]) -> Result<(), StateError> {
        let missing: Vec<Uuid> = {
            let mut known = lock(&self.configurations);
            known.retain(|digest, _| instances.iter().any(|row| row.get::<_, &[u8]>(2) == digest));
            lock(&self.unreadable).retain(|digest, _| known.contains_key(digest));
            let missing = instances.iter().filter(|row| !known.contains_key(row.get::<_, &[u8]>(2)));
            missing.map(|row| row.get(0)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        let rows = self.board.query(sql::CONFIGURATIONS, &[(&missing as _, Type::UUID_ARRAY)]).await?;
        let (mut known, mut unreadable) = (lock(&self.configurations), lock(&self.unreadable));
        for row in rows {
            let (digest, (configured, is_whole)) = (row.get::<_, Vec<u8>>(1), configured(&row));
            if !is_whole {
                let name: &str = row.get(0);
                let what = format!(
                    "the row of instance {name} in the table `instances` cannot be read completely: its unreadable parts do not count; restart that instance"
                );
                unreadable.insert(digest.clone(), UnreadableRow { channel: None, what });
            }
            known.insert(digest, Arc::new(configured));
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

impl ClusterView {
    /// Adds a row of `ownership.sql`. An unreadable part of the row concerns only its channel.
    fn add_channel(&mut self, row: &Row) {
        let channel = ChannelId(row.get(0));
        let owned = row.get::<_, Option<Uuid>>(2);
        let owned = owned.map(|by| Ownership::Owned { by, epoch: row.get::<_, i64>(1).unsigned_abs() });
        let since = || Duration::try_from_secs_f64(row.get(3)).unwrap_or_default();
        self.channels.insert(channel, owned.unwrap_or_else(|| Ownership::Orphaned { since: since() }));
        let Some(held_back) = row.get::<_, Option<&[u8]>>(4) else { return };
        match decode(held_back) {
            Ok(held_back) => drop(self.held_back.insert(channel, held_back)),
            Err(error) => {
                let what = format!(
                    "its `held_back` in the table `channels` cannot be read: {error}; it is unknown here which channels showed the proofs of its quarantined events first; its owner writes `held_back` again with the next event"
                );
                self.unreadable.insert(UnreadableRow { channel: Some(channel), what });
            }
        }
    }
}

/// The configuration in a row of `CONFIGURATIONS`, and whether it could be read completely.
fn configured(row: &Row) -> (Configured, bool) {
    let ids = row.try_get::<_, Vec<Option<Uuid>>>(2).ok();
    let channels: BTreeSet<_> = ids.iter().flatten().flatten().map(|id| ChannelId(*id)).collect();
    let settings = row.get::<_, Option<&[u8]>>(3).map(decode::<SettingDigests>);
    let is_whole = ids.is_some_and(|ids| ids.iter().all(Option::is_some)) && !matches!(settings, Some(Err(_)));
    (Configured { channels, settings: settings.and_then(Result::ok).unwrap_or_default() }, is_whole)
}

fn answer_of(row: &Row) -> Option<ForwardedResponse> {
    let (status, body) = row.get::<_, Option<i32>>(1).zip(row.get::<_, Option<Vec<u8>>>(2))?;
    Some(ForwardedResponse { status: u16::try_from(status).unwrap_or(500), body })
}
