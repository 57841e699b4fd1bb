//! What the parts of a channel count with.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use strum::{IntoStaticStr, VariantArray};

use super::Metrics;
use super::words::ChannelCounters;
use proof::event::EventType;
use record::ChannelRef;

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

/// The labels of types: the known ones, those that this version does not know, and of events whose type cannot be read.
const TYPES: [&str; 7] =
    ["watcher.event", "watcher.status", "operation.status", "wallet.status", "query.status", "other", "unreadable"];

/// The outcome that is none of the errors.
const OK: &str = "ok";

/// What is counted of one channel and of its lanes. Counting goes on from where it was.
#[derive(Clone, Debug)]
pub struct ChannelMetrics {
    metrics: Metrics,
    channel: Arc<str>,
    events: ChannelCounters<2>,
    rejected: ChannelCounters<1>,
}

impl Metrics {
    /// What is counted of one channel.
    pub fn channel(&self, channel: &ChannelRef) -> ChannelMetrics {
        let name = &*channel.name;
        let events = self.events.channel(&channel.name);
        for kind in TYPES {
            for sort in Sort::VARIANTS {
                events.add([kind, sort.into()], 0);
            }
        }
        for endpoint in Endpoint::VARIANTS {
            self.requests.with_label_values(&[name, endpoint.into(), OK]);
            self.request_duration.with_label_values(&[name, endpoint.into()]);
        }
        self.unknown_signers.with_label_values(&[name]);
        self.panics.with_label_values(&[name]);
        self.verification_duration.with_label_values(&[name]);
        let rejected = self.rejected.channel(&channel.name);
        ChannelMetrics { metrics: self.clone(), channel: channel.name.clone(), events, rejected }
    }
}

impl ChannelMetrics {
    /// The service was asked; `error` is the kind of the error, if there was one.
    pub fn asked(&self, endpoint: Endpoint, took: Duration, error: Option<&'static str>) {
        let endpoint = endpoint.into();
        self.metrics.request_duration.with_label_values(&[&*self.channel, endpoint]).observe(took.as_secs_f64());
        self.metrics.requests.with_label_values(&[&*self.channel, endpoint, error.unwrap_or(OK)]).inc();
    }

    /// An event was given a verdict. Without a type: it cannot be read.
    pub fn verdict(&self, kind: Option<&EventType>, sort: Sort) {
        self.events.add([label(kind), sort.into()], 1);
    }

    /// The words that [`rejected`](Self::rejected) may be given: they show from the start, with zero.
    pub fn may_reject(&self, reasons: impl Iterator<Item = &'static str>) {
        reasons.for_each(|reason| self.rejected.add([reason], 0));
    }

    /// Why an event was rejected, as a word of a closed set.
    pub fn rejected(&self, reason: &'static str) {
        self.rejected.add([reason], 1);
    }

    /// Signatures by keys that are not configured.
    pub fn unknown_signers(&self, signatures: u32) {
        self.metrics.unknown_signers.with_label_values(&[&*self.channel]).inc_by(signatures.into());
    }

    /// The channel's loop panicked.
    pub fn panicked(&self) {
        self.metrics.panics.with_label_values(&[&*self.channel]).inc();
    }

    /// A lane begins: what it may count shows from now on.
    pub fn lane_begins(&self, sink: &str) {
        let (metrics, labels) = (&self.metrics, [&*self.channel, sink]);
        metrics.deliveries.with_label_values(&[&*self.channel, sink, OK]);
        metrics.delivery_duration.with_label_values(&labels);
        metrics.delivered.with_label_values(&labels);
        metrics.dead_letters.with_label_values(&labels);
        metrics.delivered_age.with_label_values(&labels);
        metrics.delivered_after.with_label_values(&labels);
    }

    /// Events were offered to a sink, which took so many of them: all, or as many as before the error of that kind, which
    /// is that of one more.
    pub fn offered(&self, sink: &str, took: Duration, events: usize, error: Option<&'static str>) {
        let (metrics, labels) = (&self.metrics, [&*self.channel, sink]);
        metrics.delivery_duration.with_label_values(&labels).observe(took.as_secs_f64());
        metrics.delivered.with_label_values(&labels).inc_by(events as u64);
        metrics.deliveries.with_label_values(&[&*self.channel, sink, OK]).inc_by(events as u64);
        if let Some(error) = error {
            metrics.deliveries.with_label_values(&[&*self.channel, sink, error]).inc();
        }
    }

    /// A sink took events that were read at `read` and happened at these times, in Unix seconds.
    pub fn delivered(&self, sink: &str, read: Option<SystemTime>, times: impl Iterator<Item = Option<i64>>) {
        let labels = [&*self.channel, sink];
        let (ages, after) = (&self.metrics.delivered_age, &self.metrics.delivered_after);
        let (ages, after) = (ages.with_label_values(&labels), after.with_label_values(&labels));
        let now = SystemTime::now();
        // Clocks differ, and are set back.
        let since = |then| now.duration_since(then).unwrap_or_default().as_secs_f64();
        for time in times {
            if let Some(time) = time.and_then(|time| u64::try_from(time).ok()) {
                ages.observe(since(SystemTime::UNIX_EPOCH + Duration::from_secs(time)));
            }
            if let Some(read) = read {
                after.observe(since(read));
            }
        }
    }

    /// The signatures of a range were checked.
    pub fn checked(&self, took: Duration) {
        self.metrics.verification_duration.with_label_values(&[&*self.channel]).observe(took.as_secs_f64());
    }

    /// A sink gave an event up.
    pub fn gave_up(&self, sink: &str) {
        self.metrics.dead_letters.with_label_values(&[&*self.channel, sink]).inc();
    }
}

fn label(kind: Option<&EventType>) -> &'static str {
    match kind {
        None => "unreadable",
        Some(EventType::Other(_)) => "other",
        Some(EventType::WatcherEvent) => "watcher.event",
        Some(EventType::WatcherStatus) => "watcher.status",
        Some(EventType::OperationStatus) => "operation.status",
        Some(EventType::WalletStatus) => "wallet.status",
        Some(EventType::QueryStatus) => "query.status",
    }
}
