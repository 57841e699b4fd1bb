//! What the parts of a channel count with.

use std::sync::Arc;
use std::time::Duration;

use strum::{IntoStaticStr, VariantArray};

use super::Metrics;
use crate::event::EventType;

/// What the service is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Endpoint {
    /// A page of what is new.
    Poll,
    /// A page of what was created in a span of time.
    Search,
    /// One event.
    Event,
}

/// An event as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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

/// The types of events that have a label of their own.
const TYPES: [EventType; 5] = [
    EventType::WatcherEvent,
    EventType::WatcherStatus,
    EventType::OperationStatus,
    EventType::WalletStatus,
    EventType::QueryStatus,
];

/// The label of types that this version does not know.
const OTHER: &str = "other";

/// The label of events whose type cannot be read.
const UNREADABLE: &str = "unreadable";

/// The outcome that is none of the errors.
const OK: &str = "ok";

fn label(kind: Option<&EventType>) -> &str {
    match kind {
        None => UNREADABLE,
        Some(EventType::Other(_)) => OTHER,
        Some(known) => known.as_ref(),
    }
}

/// What is counted of one channel.
#[derive(Clone, Debug)]
pub struct ChannelMetrics {
    metrics: Metrics,
    channel: Arc<str>,
}

impl ChannelMetrics {
    pub(super) fn new(metrics: Metrics, channel: Arc<str>) -> Self {
        let (families, name) = (&*metrics.0, &*channel);
        for kind in TYPES.iter().map(EventType::as_ref).chain([OTHER, UNREADABLE]) {
            for sort in Sort::VARIANTS {
                families.events.with_label_values(&[name, kind, sort.into()]);
            }
        }
        for endpoint in Endpoint::VARIANTS {
            families.requests.with_label_values(&[name, endpoint.into(), OK]);
            families.request_duration.with_label_values(&[name, endpoint.into()]);
        }
        families.unknown_signers.with_label_values(&[name]);
        families.panics.with_label_values(&[name]);
        Self { metrics, channel }
    }

    /// What is counted of one of its lanes.
    #[must_use]
    pub fn lane(&self, sink: &Arc<str>) -> LaneMetrics {
        LaneMetrics::new(self.metrics.clone(), self.channel.clone(), sink.clone())
    }

    /// The service was asked; `error` is the kind of the error, if there was one.
    pub fn asked(&self, endpoint: Endpoint, took: Duration, error: Option<&'static str>) {
        let (families, endpoint) = (&*self.metrics.0, endpoint.into());
        families.request_duration.with_label_values(&[&*self.channel, endpoint]).observe(took.as_secs_f64());
        families.requests.with_label_values(&[&*self.channel, endpoint, error.unwrap_or(OK)]).inc();
    }

    /// An event was given a verdict. Without a type: it cannot be read.
    pub fn judged(&self, kind: Option<&EventType>, sort: Sort) {
        self.metrics.0.events.with_label_values(&[&*self.channel, label(kind), sort.into()]).inc();
    }

    /// The words that [`rejected`](Self::rejected) may be given: they show from the start, with zero.
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
        self.metrics.0.unknown_signers.with_label_values(&[&*self.channel]).inc_by(signatures.into());
    }

    /// The channel's loop panicked.
    pub fn panicked(&self) {
        self.metrics.0.panics.with_label_values(&[&*self.channel]).inc();
    }
}

/// What is counted of one lane.
#[derive(Clone, Debug)]
pub struct LaneMetrics {
    metrics: Metrics,
    channel: Arc<str>,
    sink: Arc<str>,
}

impl LaneMetrics {
    fn new(metrics: Metrics, channel: Arc<str>, sink: Arc<str>) -> Self {
        let (families, labels) = (&*metrics.0, [&*channel, &*sink]);
        families.deliveries.with_label_values(&[&*channel, &*sink, OK]);
        families.delivery_duration.with_label_values(&labels);
        families.delivered.with_label_values(&labels);
        families.dead_letters.with_label_values(&labels);
        Self { metrics, channel, sink }
    }

    /// Events were offered to the sink, which took so many of them: all, or as many as before the error of that kind.
    pub fn offered(&self, took: Duration, events: usize, error: Option<&'static str>) {
        let (families, labels) = (&*self.metrics.0, [&*self.channel, &*self.sink]);
        families.delivery_duration.with_label_values(&labels).observe(took.as_secs_f64());
        families.delivered.with_label_values(&labels).inc_by(events as u64);
        families.deliveries.with_label_values(&[&*self.channel, &*self.sink, error.unwrap_or(OK)]).inc();
    }

    /// The sink gave an event up.
    pub fn gave_up(&self) {
        self.metrics.0.dead_letters.with_label_values(&[&*self.channel, &*self.sink]).inc();
    }
}
