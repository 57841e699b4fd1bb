//! Serves the feed of the configuration.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{AssemblyError, Sinks};
use crate::config::{Config, Feed};
use feed::table::FeedTable;
use feed::{FeedListener, Listen, Served};
use net::shortage::Shortage;
use operator::feed::{ConsumerRequest, FeedHandle};
use telemetry::metrics::Metrics;

/// A feed that listens, and does not serve yet.
pub(crate) struct FeedService {
    listener: FeedListener,
    /// The memory for the events of all answers, in bytes.
    memory: usize,
    /// The queue of operators' requests.
    queue: mpsc::Receiver<ConsumerRequest>,
    /// The state of the feed for operators.
    pub(crate) operators: FeedHandle,
    /// A reload replaces the table and the settings.
    pub(crate) served: watch::Sender<Arc<Served>>,
}

impl FeedService {
    /// Opens the table and the listener, if the configuration has a feed.
    pub(crate) async fn start(
        config: &Config,
        sinks: &Sinks,
        metrics: &Metrics,
    ) -> Result<Option<Self>, AssemblyError> {
        let Some(feed) = &config.feed else { return Ok(None) };
        let table = table_of(feed, sinks)?;
        let listener = FeedListener::bind(&feed.listen)
            .await
            .map_err(|error| AssemblyError { what: feed_cannot_listen(&feed.listen, &error), source: error.into() })?;
        let memory = usize::try_from(config.feed_memory()).unwrap_or(usize::MAX);
        let served = watch::Sender::new(Arc::new(Served::new(feed.settings.clone(), table)));
        let address = listener.shown().unwrap_or_else(|| feed.listen.to_string());
        let (operators, queue) = FeedHandle::new(address, metrics.feed());
        Ok(Some(Self { listener, memory, queue, operators, served }))
    }

    /// Returns a future that waits for a short time until all clients have disconnected.
    pub(crate) fn last_answers(&self) -> impl Future<Output = ()> + use<> {
        self.listener.last_answers()
    }
}

/// The message for an address on which the feed cannot listen.
pub(crate) fn feed_cannot_listen(listen: &Listen, error: &io::Error) -> String {
    let advice = Shortage::of(error).map_or(": choose another address", Shortage::advice);
    format!("feed.listen: cannot listen on {listen}{advice}")
}

/// Serves the feed until it is dropped. Without a feed, waits forever. After `stop` was canceled, requests no longer wait.
pub(crate) async fn serve_feed(feed: Option<FeedService>, stop: CancellationToken) -> Infallible {
    match feed {
        Some(FeedService { listener, memory, queue, operators, served }) => {
            feed::serve(listener, memory, served.subscribe(), (operators, queue), stop).await
        }
        None => pending().await,
    }
}

/// Returns the table and the settings that a running feed serves after a reload. `None` if nothing changes. Each configuration is given
/// with its sinks. A sink whose settings changed was replaced, so its table is opened again.
pub(crate) fn feed_after(
    now: &Served,
    (before, sinks_before): (&Config, &Sinks),
    (after, sinks_after): (&Config, &Sinks),
) -> Result<Option<Served>, AssemblyError> {
    let Some(feed) = &after.feed else { return Ok(None) };
    let [old, new] = [sinks_before, sinks_after].map(|sinks| sinks.get(&feed.sink).map(|lane| &lane.sink));
    let is_same = old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
    if !is_same {
        return Ok(Some(Served::new(feed.settings.clone(), table_of(feed, sinks_after)?)));
    }
    let has_changed = before.feed.as_ref() != Some(feed);
    Ok(has_changed.then(|| now.with(feed.settings.clone())))
}

fn table_of(Feed { sink, .. }: &Feed, sinks: &Sinks) -> Result<Arc<dyn FeedTable>, AssemblyError> {
    // The configuration accepts only sinks that write tables, and tells the sink that a feed reads its table.
    sinks.get(sink).and_then(|lane| lane.sink.feed()).ok_or_else(|| AssemblyError {
        what: format!("feed.sink: the table of sink {sink} cannot be served"),
        source: "name a sink of type \"sqlite\" or \"postgres\"".into(),
    })
}
