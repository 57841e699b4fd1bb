//! What is counted, by the names that alert rules and dashboards are written against. They are stable: a metric may be
//! added, none is renamed.
//!
//! Counters and histograms are kept here and counted where the thing happens, with [`ChannelMetrics`] and [`LaneMetrics`]. Gauges say how things are at the moment of the scrape: they are made from
//! the report that `channeld status` shows.
//!
//! # Every metric
//!
//! A test holds this table against a scrape. `channel` and `sink` are names of the configuration. A gauge whose value is
//! not known is left out.
//!
//! | name | type | labels | what it says |
//! |---|---|---|---|
//! | `channeld_api_request_duration_seconds` | histogram | channel, endpoint | how long the service took to answer, or to fail |
//! | `channeld_api_requests_total` | counter | channel, endpoint, outcome | requests to the service: `poll`, `search`, `event`; `ok` or the kind of error |
//! | `channeld_build_info` | gauge | version | always 1 |
//! | `channeld_channel_dead_letters_full` | gauge | channel | whether the channel's dead letters are full: its sinks give up no event then |
//! | `channeld_channel_late_full` | gauge | channel | whether no more of the channel's events may wait for a proof: reading waits |
//! | `channeld_channel_panics_total` | counter | channel | panics after which a channel was started again: a defect |
//! | `channeld_channel_quarantine_full` | gauge | channel | whether the channel's quarantine is full: its reading stops before the next event that would be rejected |
//! | `channeld_channel_state` | gauge | channel, state | 1 for the state that the channel's reading is in, 0 for the others |
//! | `channeld_config_last_reload_success_timestamp_seconds` | gauge | | when the configuration in force was read |
//! | `channeld_config_last_reload_successful` | gauge | | whether the last reading of the configuration succeeded |
//! | `channeld_dead_letters_kept` | gauge | | events that sinks gave up on and that are kept, all channels together |
//! | `channeld_dead_letters_kept_bytes` | gauge | | their bytes |
//! | `channeld_dead_letters_full` | gauge | | whether the dead letters of at least one channel are full |
//! | `channeld_dead_letters_total` | counter | channel, sink | events that a sink gave up on |
//! | `channeld_deliveries_total` | counter | channel, sink, outcome | offers of one or more events to a sink: `ok`, `refused`, `gone`, `io`, `closed` |
//! | `channeld_delivery_duration_seconds` | histogram | channel, sink | how long an offer took |
//! | `channeld_events_delivered_total` | counter | channel, sink | events that a sink has taken |
//! | `channeld_events_rejected_total` | counter | channel, reason | events rejected, by the reason |
//! | `channeld_events_total` | counter | channel, type, verdict | events by type and verdict; one whose proof comes late counts as `pending` and again as `verified` |
//! | `channeld_lag_events` | gauge | channel | the newest offset less the processed: at most so many events are undelivered |
//! | `channeld_lane_lag_events` | gauge | channel, sink | the same for one sink |
//! | `channeld_lane_oldest_undelivered_age_seconds` | gauge | channel, sink | the same for one sink |
//! | `channeld_lane_processed_offset` | gauge | channel, sink | the last offset that this sink has dealt with |
//! | `channeld_lane_queue_batches` | gauge | channel, sink | batches that were read and wait for this sink |
//! | `channeld_lane_state` | gauge | channel, sink, state | 1 for the state that the lane is in, 0 for the others |
//! | `channeld_late_proofs` | gauge | channel | events that are set aside because their proof has not come |
//! | `channeld_live` | gauge | | whether nothing stands still that should move: what `/livez` says |
//! | `channeld_newest_offset` | gauge | channel | the highest offset that the service has shown since the start and that is believed |
//! | `channeld_oldest_undelivered_age_seconds` | gauge | channel | the age of the oldest event known that some sink has not got; 0 where there is none |
//! | `channeld_processed_offset` | gauge | channel | the last offset that every sink has dealt with |
//! | `channeld_quarantine_bytes` | gauge | | bytes of all quarantined events |
//! | `channeld_quarantine_events` | gauge | | events in the quarantine, all channels together |
//! | `channeld_quarantine_full` | gauge | | whether the quarantine of at least one channel is full |
//! | `channeld_quarantined_bytes` | gauge | channel | bytes of the channel's quarantined events |
//! | `channeld_quarantined_events` | gauge | channel | events in the quarantine |
//! | `channeld_ready` | gauge | | whether everything is as it should be: what `/readyz` says |
//! | `channeld_required_signatures` | gauge | channel | how many distinct signers an event needs |
//! | `channeld_signer_last_seen_timestamp_seconds` | gauge | channel, signer | when a signature of this configured signer was last counted; left out before the first |
//! | `channeld_state_commit_duration_seconds` | histogram | | how long the state took to be on disk |
//! | `channeld_state_lost_events` | gauge | kind | quarantined events (`quarantined`) and dead letters (`dead_letter`) that a damaged database has lost, until `channeld state acknowledge` |
//! | `channeld_state_writable` | gauge | | whether the state can be written; it is checked every two seconds |
//! | `channeld_trace_spans_lost_total` | counter | | spans that the collector of traces did not take, or had no time for |
//! | `channeld_unknown_signer_signatures_total` | counter | channel | signatures over our owner's events by keys that are not configured: how a rotation announces itself |
//! | `process_cpu_seconds_total` | counter | | whole seconds of processor time |
//! | `process_max_fds` | gauge | | file descriptors that the process may have open |
//! | `process_open_fds` | gauge | | file descriptors that it has open |
//! | `process_resident_memory_bytes` | gauge | | memory in use |
//! | `process_start_time_seconds` | gauge | | when the process began |
//! | `process_threads` | gauge | | its threads |
//! | `process_virtual_memory_bytes` | gauge | | its address space |
//!
//! # Invariants
//!
//! * **Bounded labels.** Names of the configuration and closed sets of words: nothing that the service says becomes a
//!   label.
//! * **Counted for as long as the process lives.** Reading the configuration again resets nothing.
//! * **Counted from zero.** What a channel or a lane may count shows from its start, so that the first one is an increase.
//! * **No globals.** The registry is the process's own and is handed on.

use std::sync::Arc;

use jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::record::ChannelRef;

mod counted;

pub use counted::{ChannelMetrics, Endpoint, LaneMetrics, Sort};

/// From half a millisecond, which a file takes, to the half minute that is a request's default timeout.
const SECONDS: [f64; 15] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Everything that this process counts. Clones share it.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Registry,
    requests: IntCounterVec,
    request_duration: HistogramVec,
    events: IntCounterVec,
    rejected: IntCounterVec,
    unknown_signers: IntCounterVec,
    panics: IntCounterVec,
    deliveries: IntCounterVec,
    delivery_duration: HistogramVec,
    delivered: IntCounterVec,
    dead_letters: IntCounterVec,
    reload_successful: IntGauge,
    reloaded_at: IntGauge,
    spans_lost: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(families(Registry::new())))
    }
}

fn families(registry: Registry) -> Families {
    const LANE: [&str; 2] = ["channel", "sink"];
    let counters = |name, help, labels: &[&str]| register(&registry, IntCounterVec::new(Opts::new(name, help), labels));
    let histograms = |name, help, labels: &[&str]| register(&registry, HistogramVec::new(buckets(name, help), labels));
    let gauge = |name, help| register(&registry, IntGauge::new(name, help));
    let lost = ("channeld_trace_spans_lost_total", "Spans that the collector of traces did not take.");
    Families {
        requests: counters(
            "channeld_api_requests_total",
            "Requests to the service.",
            &["channel", "endpoint", "outcome"],
        ),
        request_duration: histograms(
            "channeld_api_request_duration_seconds",
            "How long the service took to answer.",
            &["channel", "endpoint"],
        ),
        events: counters("channeld_events_total", "Events by type and verdict.", &["channel", "type", "verdict"]),
        rejected: counters("channeld_events_rejected_total", "Events rejected, by reason.", &["channel", "reason"]),
        unknown_signers: counters(
            "channeld_unknown_signer_signatures_total",
            "Signatures over our owner's events by keys that are not configured.",
            &["channel"],
        ),
        panics: counters("channeld_channel_panics_total", "Panics that restarted a channel.", &["channel"]),
        deliveries: counters("channeld_deliveries_total", "Offers to a sink.", &["channel", "sink", "outcome"]),
        delivery_duration: histograms("channeld_delivery_duration_seconds", "How long an offer to a sink took.", &LANE),
        delivered: counters("channeld_events_delivered_total", "Events that a sink has taken.", &LANE),
        dead_letters: counters("channeld_dead_letters_total", "Events that a sink gave up on.", &LANE),
        reload_successful: gauge(
            "channeld_config_last_reload_successful",
            "Whether the last reading of the configuration succeeded.",
        ),
        reloaded_at: gauge(
            "channeld_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was read.",
        ),
        spans_lost: register(&registry, IntCounter::new(lost.0, lost.1)),
        registry,
    }
}

impl Metrics {
    /// What is counted of one channel. Counting goes on from where it was.
    #[must_use]
    pub fn channel(&self, channel: &ChannelRef) -> ChannelMetrics {
        ChannelMetrics::new(self.clone(), channel.name.clone())
    }

    /// Also shows what is counted elsewhere.
    pub fn show(&self, other: impl Collector + 'static) {
        add(&self.0.registry, other);
    }

    /// Also shows what the system knows of this process.
    pub fn show_process(&self) {
        self.show(ProcessCollector::for_self());
    }

    /// The configuration was read, and is in force.
    pub fn config_in_force(&self) {
        self.0.reload_successful.set(1);
        self.0.reloaded_at.set(Timestamp::now().as_second());
    }

    /// The configuration was read again, and is of no use.
    pub fn config_rejected(&self) {
        self.0.reload_successful.set(0);
    }

    /// Where it is counted which spans the collector of traces did not take.
    #[must_use]
    pub fn spans_lost(&self) -> IntCounter {
        self.0.spans_lost.clone()
    }

    /// Everything as it is now.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.0.registry.gather()
    }
}

/// How long a commit of the state takes; [shown](Metrics::show) once there is a state.
pub(crate) fn commit_duration() -> Histogram {
    let (name, help) = ("channeld_state_commit_duration_seconds", "How long the state took to be on disk.");
    Histogram::with_opts(buckets(name, help)).expect(WELL_FORMED)
}

const WELL_FORMED: &str = "names, labels and buckets are constants that the tests have seen accepted";

fn buckets(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(SECONDS.to_vec())
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect(WELL_FORMED);
    add(registry, metric.clone());
    metric
}

fn add(registry: &Registry, metric: impl Collector + 'static) {
    registry.register(Box::new(metric)).expect("every name is registered once");
}
