//! The metrics. Alert rules and dashboards use their names, so the names are stable: metrics may be added, but not
//! renamed.
//!
//! Counters and histograms are stored here and updated in place with [`ChannelMetrics`]. Gauges show the state at the
//! time of the scrape. They are computed from the same report as the output of `channeld status`.
//!
//! # Invariants
//!
//! * **Bounded labels.** Labels are names from the configuration and closed sets of words. Text from the service never
//!   becomes a label.
//! * **Counted as long as the process lives.** Reading the configuration again resets nothing.
//! * **Counted from zero,** so that the first event is visible as an increase. Of the counters of a channel, only two begin
//!   at zero: see the table. The others appear with their first count, so their alerts also fire when a series appears.
//! * **Few series per channel.** Durations and ages are measured per sink or per process, because a histogram has 18
//!   series. A scrape of a thousand channels stays below 1 MiB.
//! * **No globals.** The registry belongs to the process and is passed as a parameter.
//!
//! # Every metric
//!
//! The labels and the help of each metric are read from this table, and a test compares the table with a scrape.
//! `channel` and `sink` are names of the configuration. A gauge with an unknown value is omitted. A series of a channel that
//! is 0 is omitted too, except the lag, the oldest undelivered age, the offsets, the delivered events, and the polls
//! that were answered. A healthy channel with one sink has about 14 series.
//!
#![doc = include_str!("metrics/table.md")]

use jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

mod channel;
mod counters;
mod feed;
mod process;
mod table;

use counters::WordCounters;
use process::ProcessMetrics;
use table::{buckets, described, labels, well_formed};

pub use channel::{ChannelMetrics, Endpoint, Sort, Upkeep, UpkeepFailures};
pub use feed::{FeedCall, FeedMetrics};

/// All metrics of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The registry of all metrics.
    pub registry: Registry,
    requests: IntCounterVec,
    request_duration: HistogramVec,
    events: WordCounters,
    events_by_type: IntCounterVec,
    rejected: WordCounters,
    unknown_signers: IntCounterVec,
    unknown_values: IntCounterVec,
    panics: IntCounterVec,
    deliveries: IntCounterVec,
    delivery_duration: HistogramVec,
    delivered: IntCounterVec,
    dead_letters: IntCounterVec,
    without_confidence: IntCounterVec,
    delivered_age: HistogramVec,
    delivered_after: HistogramVec,
    verification_duration: Histogram,
    webhook_requests: IntCounterVec,
    webhook_duration: HistogramVec,
    upkeep_failures: IntCounterVec,
    feed_requests: IntCounterVec,
    feed_gone: IntCounterVec,
    reload_successful: IntGauge,
    reloaded_at: IntGauge,
    /// Spans that the collector did not accept.
    pub spans_lost: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let counters = |name| register(&registry, IntCounterVec::new(described(name), &labels(name)));
        let histograms = |name| register(&registry, HistogramVec::new(buckets(name), &labels(name)));
        let gauge = |name| register(&registry, IntGauge::with_opts(described(name)));
        let metrics = Self {
            requests: counters("channeld_api_requests_total"),
            request_duration: histograms("channeld_api_request_duration_seconds"),
            events: WordCounters::new("channeld_events_total"),
            events_by_type: counters("channeld_events_by_type_total"),
            rejected: WordCounters::new("channeld_events_rejected_total"),
            unknown_signers: counters("channeld_unknown_signer_signatures_total"),
            unknown_values: counters("channeld_unknown_values_total"),
            panics: counters("channeld_channel_panics_total"),
            deliveries: counters("channeld_deliveries_total"),
            delivery_duration: histograms("channeld_delivery_duration_seconds"),
            delivered: counters("channeld_events_delivered_total"),
            dead_letters: counters("channeld_dead_letters_total"),
            without_confidence: counters("channeld_events_without_confidence_total"),
            delivered_age: histograms("channeld_delivered_event_age_seconds"),
            delivered_after: histograms("channeld_delivered_after_reading_seconds"),
            verification_duration: register(
                &registry,
                Histogram::with_opts(buckets("channeld_verification_duration_seconds")),
            ),
            webhook_requests: counters("channeld_webhook_requests_total"),
            webhook_duration: histograms("channeld_webhook_request_duration_seconds"),
            upkeep_failures: counters("channeld_file_upkeep_failures_total"),
            feed_requests: counters("channeld_feed_requests_total"),
            feed_gone: counters("channeld_feed_gone_total"),
            reload_successful: gauge("channeld_config_last_reload_successful"),
            reloaded_at: gauge("channeld_config_last_reload_success_timestamp_seconds"),
            spans_lost: register(&registry, IntCounter::with_opts(described("channeld_trace_spans_lost_total"))),
            registry,
        };
        metrics.begin_process();
        metrics.show(metrics.events.clone());
        metrics.show(metrics.rejected.clone());
        metrics.show(ProcessMetrics { collector: ProcessCollector::for_self(), started: Timestamp::now() });
        metrics
    }
}

impl Metrics {
    /// Adds metrics that are counted elsewhere.
    pub fn show(&self, other: impl Collector + 'static) {
        well_formed(self.registry.register(Box::new(other)));
    }

    /// Records that the configuration was read and is in effect.
    pub fn config_in_force(&self) {
        self.reload_successful.set(1);
        self.reloaded_at.set(Timestamp::now().as_second());
    }

    /// Records that the configuration was read again and is invalid.
    pub fn config_rejected(&self) {
        self.reload_successful.set(0);
    }
}

/// The duration of state commits. Must be [added](Metrics::show) when the state is open.
pub fn commit_duration() -> Histogram {
    well_formed(Histogram::with_opts(buckets("channeld_state_commit_duration_seconds")))
}

/// A separate counter. Must be [added](Metrics::show) to the metrics.
pub fn counter(name: &str) -> IntCounter {
    well_formed(IntCounter::with_opts(described(name)))
}

/// A gauge that is created for one scrape.
pub fn gauge(name: &str) -> IntGaugeVec {
    well_formed(IntGaugeVec::new(described(name), &labels(name)))
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = well_formed(metric);
    well_formed(registry.register(Box::new(metric.clone())));
    metric
}
