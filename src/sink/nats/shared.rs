//! The state that the lanes of a sink share: the server, and the stream as the server describes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::info;
use uuid::Uuid;

use super::position::Position;
use super::server::{Server, misconfigured};
use super::stream::{self, Facts, Stream};
use crate::SinkError;
use crate::settings::NatsSettings;

/// The most events in one batch. A server accepts 1,000 messages in a batch, and the position is one of them.
pub(super) const BATCH: usize = 999;

/// The most events in one delivery, which the ledger records as one. A delivery has fewer events if the position could not
/// name this many within the server's limit for one message.
const AT_ONCE: usize = 2 * BATCH;

/// The most events in one delivery if each event is published alone, because each event takes a round trip.
const AT_ONCE_ALONE: usize = 100;

const MISSING: &str = "it is missing: create it, or set create = true";

/// The state that the lanes of a sink share.
pub(super) struct Shared {
    pub(super) settings: Arc<NatsSettings>,
    pub(super) server: Server,
    /// The run of the process.
    pub(super) instance: Uuid,
    /// The most events in one delivery. It depends on the settings of the stream.
    at_once: AtomicUsize,
}

impl Shared {
    pub(super) fn new(settings: NatsSettings) -> Self {
        let settings = Arc::new(settings);
        let server = Server::new(settings.clone());
        Self { settings, server, instance: Uuid::new_v4(), at_once: AtomicUsize::new(AT_ONCE) }
    }

    pub(super) fn at_once(&self) -> usize {
        self.at_once.load(Ordering::Relaxed)
    }

    /// The facts about the stream. Creates a missing stream if the configuration and the caller allow it. Returns `None` if
    /// the stream is missing and the caller does not allow to create it.
    pub(super) async fn stream(&self, may_make: bool) -> Result<Option<Facts>, SinkError> {
        let Self { server, settings, .. } = self;
        let version = self.version().await?;
        let mut found = self.look().await?;
        if found.is_none() && !may_make {
            return Ok(None);
        }
        if found.is_none() && settings.create {
            let made = server.create(&stream::wanted(settings, &version)).await;
            made.map_err(|failure| server.error_in("making", failure))?;
            info!(stream = %settings.stream, "stream made");
            found = self.look().await?;
        }
        let facts = self.facts(found, &version)?;
        let most = if facts.batches { AT_ONCE } else { AT_ONCE_ALONE };
        let largest = facts.max_size.unwrap_or(usize::MAX).min(self.max_payload().await?);
        self.at_once.store(most.min(Position::most_events(largest)), Ordering::Relaxed);
        Ok(Some(facts))
    }

    /// Says whether the stream can be used, without creating it.
    pub(super) async fn probe(&self) -> Result<String, SinkError> {
        let version = self.version().await?;
        let found = self.look().await?;
        if found.is_none() && self.settings.create {
            let name = &self.settings.stream;
            return Ok(format!(
                "NATS {version} is reachable; the stream {name} will be created: it has no limits until you set some"
            ));
        }
        Ok(stream::summary(&self.facts(found, &version)?, &self.settings, &version))
    }

    async fn look(&self) -> Result<Option<Stream>, SinkError> {
        self.server.stream().await.map_err(|failure| self.server.error_in("looking at", failure))
    }

    fn facts(&self, found: Option<Stream>, version: &str) -> Result<Facts, SinkError> {
        let facts = found.ok_or_else(|| MISSING.to_owned());
        let facts = facts.and_then(|found| stream::facts(found, &self.settings, version));
        facts.map_err(|message| misconfigured(&format!("using the stream {}", self.settings.stream), &message))
    }

    /// The version of the server.
    async fn version(&self) -> Result<String, SinkError> {
        let client = self.server.client().await?;
        Ok(client.try_server_info().map(|info| info.version).unwrap_or_default())
    }

    /// The largest message with its headers, in bytes, that the server accepts.
    pub(super) async fn max_payload(&self) -> Result<usize, SinkError> {
        let client = self.server.client().await?;
        Ok(client.try_server_info().map_or(usize::MAX, |info| info.max_payload))
    }
}
