//! The metrics that the parts of a channel and its sinks update.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prometheus::IntCounterVec;
use reqwest::StatusCode;
use strum::{IntoStaticStr, VariantArray};

use super::Metrics;
use super::counters::ChannelCounters;
use proof::event::{EventType, UnknownPart};
use record::ChannelRef;

/// The kinds of requests to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Endpoint {
    /// A page of new events.
    Poll,
    /// A page of events that were created within a time range.
    Search,
    /// One event.
    Event,
}

/// The verdict about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Sort {
    /// Its proof is valid.
    Verified,
    /// Its type never has a proof.
    Unsigned,
    /// Its proof has not arrived.
    Pending,
    /// Its proof is not valid.
    Rejected,
}

/// The label for event types that are not [known](EventType::KNOWN).
const OTHER: &str = "other";

/// The label for events whose type cannot be read.
const UNREADABLE: &str = "unreadable";

/// The label of a success. The other labels are kinds of errors.
const OK: &str = "ok";

/// The status label of a request that got no answer.
const NO_ANSWER: &str = "none";

/// Maintenance of a sink's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Upkeep {
    /// Closing a file and starting the next one.
    Rotate,
    /// Compressing a closed file.
    Compress,
    /// Deleting closed files after their retention time.
    Delete,
    /// The link to the last closed file, leftovers of a crash, and the index.
    Other,
}

/// Counts the maintenance failures of one sink. By default nothing is counted.
#[derive(Clone, Debug, Default)]
pub struct UpkeepFailures(Option<(IntCounterVec, Arc<str>)>);

impl UpkeepFailures {
    /// Counts a failure.
    pub fn count(&self, what: Upkeep) {
        if let Some((failures, sink)) = &self.0 {
            failures.with_label_values(&[&**sink, what.into()]).inc();
        }
    }

    /// How many failures of this kind were counted.
    pub fn counted(&self, what: Upkeep) -> u64 {
        self.0.as_ref().map_or(0, |(failures, sink)| failures.with_label_values(&[&**sink, what.into()]).get())
    }
}

/// The metrics of one channel and its lanes. If a channel starts again, its counters continue.
#[derive(Clone, Debug)]
pub struct ChannelMetrics {
    metrics: Metrics,
    channel: Arc<str>,
    events: ChannelCounters,
    rejected: ChannelCounters,
}

impl Metrics {
    /// Creates the counters and histograms of the whole process with value zero.
    pub(super) fn begin_process(&self) {
        for kind in EventType::KNOWN.into_iter().chain([OTHER, UNREADABLE]) {
            for sort in Sort::VARIANTS {
                self.events_by_type.with_label_values(&[kind, sort.into()]);
            }
        }
        for what in UnknownPart::VARIANTS {
            self.unknown_values.with_label_values(&[<&str>::from(what)]);
        }
        for endpoint in Endpoint::VARIANTS {
            self.request_duration.with_label_values(&[<&str>::from(endpoint)]);
        }
    }

    /// The metrics of one channel.
    pub fn channel(&self, channel: &ChannelRef) -> ChannelMetrics {
        let name = &*channel.name;
        let events = self.events.channel(&channel.name);
        // An alert compares this counter with its value five minutes ago, even if no poll was ever answered. The other counters of
        // a channel are not shown with value zero.
        self.requests.with_label_values(&[name, Endpoint::Poll.into(), OK]);
        let rejected = self.rejected.channel(&channel.name);
        ChannelMetrics { metrics: self.clone(), channel: channel.name.clone(), events, rejected }
    }

    /// The maintenance failures of one sink. The counters exist from the start with value zero.
    pub fn upkeep_failures(&self, sink: &str) -> UpkeepFailures {
        for what in Upkeep::VARIANTS {
            self.upkeep_failures.with_label_values(&[sink, what.into()]);
        }
        UpkeepFailures(Some((self.upkeep_failures.clone(), sink.into())))
    }

    /// Counts a webhook request of a sink. `status` is `None` if the endpoint did not answer.
    pub fn webhook_asked(&self, sink: &str, took: Duration, status: Option<StatusCode>) {
        let code = match status {
            None => NO_ANSWER.to_owned(),
            Some(known) if known.canonical_reason().is_some() => known.as_str().to_owned(),
            // An endpoint can invent status codes, so an unknown code is not used as a label.
            Some(unknown) => format!("{}xx", unknown.as_u16() / 100),
        };
        self.webhook_requests.with_label_values(&[sink, &code]).inc();
        self.webhook_duration.with_label_values(&[sink]).observe(took.as_secs_f64());
    }
}

impl ChannelMetrics {
    /// Counts a request to the service. `error` is the kind of the error, if the request failed.
    pub fn asked(&self, endpoint: Endpoint, took: Duration, error: Option<&'static str>) {
        let endpoint = endpoint.into();
        self.metrics.request_duration.with_label_values(&[endpoint]).observe(took.as_secs_f64());
        self.metrics.requests.with_label_values(&[&*self.channel, endpoint, error.unwrap_or(OK)]).inc();
    }

    /// Counts the verdict about an event. The type is `None` if it cannot be read.
    pub fn verdict(&self, kind: Option<&EventType>, sort: Sort) {
        self.events.count(sort.into());
        self.metrics.events_by_type.with_label_values(&[label(kind), sort.into()]).inc();
    }

    /// Counts a rejected event. The reason is from a closed set of words.
    pub fn rejected(&self, reason: &'static str) {
        self.rejected.count(reason);
    }

    /// Counts signatures by keys that are not configured.
    pub fn unknown_signers(&self, signatures: u32) {
        self.metrics.unknown_signers.with_label_values(&[&*self.channel]).inc_by(signatures.into());
    }

    /// Counts a value of the service that this version does not know.
    pub fn unknown_value(&self, what: UnknownPart) {
        self.metrics.unknown_values.with_label_values(&[<&str>::from(what)]).inc();
    }

    /// Counts a panic in the channel's loop.
    pub fn panicked(&self) {
        self.metrics.panics.with_label_values(&[&*self.channel]).inc();
    }

    /// Creates the metrics of a lane that a scrape shows with value zero.
    pub fn lane_begins(&self, sink: &str) {
        let metrics = &self.metrics;
        metrics.delivered.with_label_values(&[&*self.channel, sink]);
        metrics.deliveries.with_label_values(&[sink, OK]);
        metrics.without_confidence.with_label_values(&[sink]);
        for histograms in [&metrics.delivery_duration, &metrics.delivered_age, &metrics.delivered_after] {
            histograms.with_label_values(&[sink]);
        }
    }

    /// Counts an attempt to deliver events to a sink. `events` is the number of accepted events. If `error` is set, one
    /// more event failed with an error of that kind.
    pub fn offered(&self, sink: &str, took: Duration, events: usize, error: Option<&'static str>) {
        let metrics = &self.metrics;
        metrics.delivery_duration.with_label_values(&[sink]).observe(took.as_secs_f64());
        metrics.delivered.with_label_values(&[&*self.channel, sink]).inc_by(events as u64);
        metrics.deliveries.with_label_values(&[sink, OK]).inc_by(events as u64);
        if let Some(error) = error {
            metrics.deliveries.with_label_values(&[sink, error]).inc();
        }
    }

    /// Counts delivered events that were read at `read`. `times` are the times at which they happened, in Unix seconds.
    pub fn delivered(&self, sink: &str, read: Option<SystemTime>, times: impl Iterator<Item = Option<i64>>) {
        let (ages, after) = (&self.metrics.delivered_age, &self.metrics.delivered_after);
        let (ages, after) = (ages.with_label_values(&[sink]), after.with_label_values(&[sink]));
        let now = SystemTime::now();
        // `then` can be in the future, because clocks differ and can be set back.
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

    /// Records how long it took to check the signatures of a range.
    pub fn checked(&self, took: Duration) {
        self.metrics.verification_duration.observe(took.as_secs_f64());
    }

    /// Counts watcher events that a sink did not receive because of their missing confidence alone.
    pub fn without_confidence(&self, sink: &str, events: u64) {
        self.metrics.without_confidence.with_label_values(&[sink]).inc_by(events);
    }

    /// Counts an event that a sink gave up on.
    pub fn gave_up(&self, sink: &str) {
        self.metrics.dead_letters.with_label_values(&[&*self.channel, sink]).inc();
    }
}

fn label(kind: Option<&EventType>) -> &'static str {
    let Some(kind) = kind else { return UNREADABLE };
    EventType::KNOWN.into_iter().find(|known| *known == kind.as_ref()).unwrap_or(OTHER)
}
