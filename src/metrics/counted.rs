//! What the parts of a channel count with: each handle is looked up once, and is then one atomic number.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter};

use super::Metrics;
use crate::event::EventType;

/// What the service is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A page of what is new.
    Poll,
    /// A page of what was created in a span of time.
    Search,
    /// One event.
    Event,
}

/// An event as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Its proof holds.
    Verified,
    /// It never carries one.
    Unsigned,
    /// Its proof has not come.
    Pending,
    /// Its proof does not hold.
    Rejected,
}

impl Endpoint {
    const ALL: [Self; 3] = [Self::Poll, Self::Search, Self::Event];

    fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Search => "search",
            Self::Event => "event",
        }
    }
}

impl Sort {
    const ALL: [Self; 4] = [Self::Verified, Self::Unsigned, Self::Pending, Self::Rejected];

    fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unsigned => "unsigned",
            Self::Pending => "pending",
            Self::Rejected => "rejected",
        }
    }
}

/// The types of events that have a label of their own, then those that this version does not know, then those whose type
/// cannot be read.
const TYPES: [&str; 7] =
    ["watcher.event", "watcher.status", "operation.status", "wallet.status", "query.status", "other", "unreadable"];

fn type_of(kind: Option<&EventType>) -> usize {
    match kind {
        Some(EventType::WatcherEvent) => 0,
        Some(EventType::WatcherStatus) => 1,
        Some(EventType::OperationStatus) => 2,
        Some(EventType::WalletStatus) => 3,
        Some(EventType::QueryStatus) => 4,
        Some(EventType::Other(_)) => 5,
        None => 6,
    }
}

/// What is counted of one channel.
pub struct ChannelMetrics {
    metrics: Metrics,
    channel: Arc<str>,
    events: [[IntCounter; Sort::ALL.len()]; TYPES.len()],
    durations: [Histogram; Endpoint::ALL.len()],
    unknown_signers: IntCounter,
    panics: IntCounter,
}

impl ChannelMetrics {
    pub(super) fn new(metrics: Metrics, channel: Arc<str>) -> Self {
        let families = &*metrics.0;
        let count = |kind: &str, sort: Sort| families.events.with_label_values(&[&*channel, kind, sort.name()]);
        let took = |endpoint: Endpoint| families.request_duration.with_label_values(&[&*channel, endpoint.name()]);
        for endpoint in Endpoint::ALL {
            families.requests.with_label_values(&[&*channel, endpoint.name(), OK]);
        }
        Self {
            events: TYPES.map(|kind| Sort::ALL.map(|sort| count(kind, sort))),
            durations: Endpoint::ALL.map(took),
            unknown_signers: families.unknown_signers.with_label_values(&[&*channel]),
            panics: families.panics.with_label_values(&[&*channel]),
            channel,
            metrics,
        }
    }

    /// What is counted of one of its lanes.
    #[must_use]
    pub fn lane(&self, sink: &Arc<str>) -> LaneMetrics {
        LaneMetrics::new(self.metrics.clone(), self.channel.clone(), sink.clone())
    }

    /// The service was asked, and this is the kind of the error, if there was one.
    pub fn asked(&self, endpoint: Endpoint, took: Duration, error: Option<&'static str>) {
        self.durations[endpoint as usize].observe(took.as_secs_f64());
        let outcome = error.unwrap_or(OK);
        self.metrics.0.requests.with_label_values(&[&*self.channel, endpoint.name(), outcome]).inc();
    }

    /// An event was given a verdict. Without a type: it cannot be read.
    pub fn judged(&self, kind: Option<&EventType>, sort: Sort) {
        self.events[type_of(kind)][sort as usize].inc();
    }

    /// The words that [`rejected`](Self::rejected) may be told: counted from zero on, so that the first shows.
    pub fn may_reject(&self, reasons: impl Iterator<Item = &'static str>) {
        for reason in reasons {
            self.metrics.0.rejected.with_label_values(&[&*self.channel, reason]);
        }
    }

    /// Why an event was rejected, as a word of a closed set.
    pub fn rejected(&self, reason: &'static str) {
        self.metrics.0.rejected.with_label_values(&[&*self.channel, reason]).inc();
    }

    /// Signatures by keys that are not configured.
    pub fn strangers(&self, signatures: u32) {
        self.unknown_signers.inc_by(signatures.into());
    }

    /// The channel's loop panicked.
    pub fn panicked(&self) {
        self.panics.inc();
    }
}

/// What is counted of one lane.
pub struct LaneMetrics {
    metrics: Metrics,
    channel: Arc<str>,
    sink: Arc<str>,
    duration: Histogram,
    delivered: IntCounter,
    dead_letters: IntCounter,
}

/// The outcome that is none of the errors.
const OK: &str = "ok";

impl LaneMetrics {
    fn new(metrics: Metrics, channel: Arc<str>, sink: Arc<str>) -> Self {
        let (families, labels) = (&*metrics.0, [&*channel, &*sink]);
        families.deliveries.with_label_values(&[&*channel, &*sink, OK]);
        Self {
            duration: families.delivery_duration.with_label_values(&labels),
            delivered: families.delivered.with_label_values(&labels),
            dead_letters: families.dead_letters.with_label_values(&labels),
            channel,
            sink,
            metrics,
        }
    }

    /// Something was offered to the sink, which took so many events of it: all, or as many as before the error of that
    /// kind.
    pub fn offered(&self, took: Duration, events: usize, error: Option<&'static str>) {
        self.duration.observe(took.as_secs_f64());
        self.delivered.inc_by(events as u64);
        let outcome = error.unwrap_or(OK);
        self.metrics.0.deliveries.with_label_values(&[&*self.channel, &*self.sink, outcome]).inc();
    }

    /// The sink gave an event up.
    pub fn gave_up(&self) {
        self.dead_letters.inc();
    }
}

impl fmt::Debug for ChannelMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelMetrics").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl fmt::Debug for LaneMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneMetrics").field("channel", &self.channel).field("sink", &self.sink).finish_non_exhaustive()
    }
}
