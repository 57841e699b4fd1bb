//! The text of a metrics scrape: the counters, and gauges that are computed from a current report.
//!
//! # Invariants
//!
//! * **Only the current configuration.** The scrape omits the counts of a channel or sink that is no longer configured.
//!   These counts are kept, because the channel or sink can be configured again.
//! * **A healthy channel is short.** Of a channel, values of 0 are omitted unless an alert or a reader needs them.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use prometheus::proto::{LabelPair, Metric, MetricFamily};
use prometheus::{IntGaugeVec, Registry, TextEncoder};

use crate::Report;
use crate::feed::FeedStatus;
use channel::{ChannelStatus, LaneStatus, ReplayStatus, SignerStatus};
use ledger::Pause;
use proof::event::Offset;
use telemetry::metrics::{self, Metrics};

/// The counters of a channel that are shown even if they are 0. An alert fires if the first one does not increase, and the
/// rate of the second one is shown for every lane.
const SHOWN_AT_ZERO: [&str; 2] = ["channeld_api_requests_total", "channeld_events_delivered_total"];

/// A signer is live if one of its signatures was counted this recently.
const LIVE: Duration = Duration::from_secs(24 * 60 * 60);

/// Deprecated names, which remain for one version, and the current names of the same metrics.
const DEPRECATED: [(&str, &str); 4] = [
    ("channeld_channel_late_full", "channeld_channel_pending_full"),
    ("channeld_claims_lost_total", "channeld_leases_lost_total"),
    ("channeld_claims_total", "channeld_leases_taken_total"),
    ("channeld_late_proofs", "channeld_pending_events"),
];

pub(super) fn text(metrics: &Metrics, report: &Report, live: bool) -> prometheus::Result<String> {
    let configured = report.channels.iter().map(|channel| (&*channel.channel, channel)).collect();
    let mut families = metrics.registry.gather();
    for family in &mut families {
        let is_shown_at_zero = SHOWN_AT_ZERO.contains(&family.name());
        let is_shown =
            |metric: &Metric| is_configured(metric, &configured) && (is_shown_at_zero || !is_zero_of_channel(metric));
        let shown = family.take_metric().into_iter().filter(is_shown).collect();
        family.set_metric(shown);
    }
    families.retain(|family| !family.get_metric().is_empty());
    let mut gauges = Gauges::default();
    of_process(&mut gauges, report, live);
    of_signers(&mut gauges, &report.channels);
    if let Some(feed) = &report.feed {
        of_feed(&mut gauges, feed, report.daemon.map(|process| process.started));
    }
    for channel in &report.channels {
        of_channel(&mut gauges, channel);
        channel.lanes.iter().for_each(|lane| of_lane(&mut gauges, &channel.channel, lane));
    }
    let registry = Registry::new();
    gauges.0.into_values().try_for_each(|gauge| registry.register(Box::new(gauge)))?;
    families.extend(registry.gather());
    let repeated: Vec<_> = DEPRECATED.iter().filter_map(|(name, current)| repeated(name, current, &families)).collect();
    families.extend(repeated);
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families)
}

fn repeated(name: &str, current: &str, families: &[MetricFamily]) -> Option<MetricFamily> {
    let mut family = families.iter().find(|family| family.name() == current)?.clone();
    family.set_name(name.to_owned());
    family.set_help(format!("deprecated: the same as `{current}`"));
    Some(family)
}

fn is_configured(metric: &Metric, configured: &BTreeMap<&str, &ChannelStatus>) -> bool {
    let label = |name| metric.get_label().iter().find(|label| label.name() == name).map(LabelPair::value);
    let has_sink = |channel: &&ChannelStatus| {
        label("sink").is_none_or(|sink| channel.lanes.iter().any(|lane| *lane.sink == *sink))
    };
    match label("channel") {
        Some(channel) => configured.get(channel).is_some_and(has_sink),
        None => label("sink").is_none() || configured.values().any(has_sink),
    }
}

/// Whether this is a counter of a channel, and its value is 0. A scrape contains no histogram of a channel.
fn is_zero_of_channel(metric: &Metric) -> bool {
    metric.get_label().iter().any(|label| label.name() == "channel") && metric.get_counter().get_value() == 0.0
}

fn of_process(gauges: &mut Gauges, report: &Report, live: bool) {
    let Report { ready, quarantine, dead_letters, lost, .. } = report;
    let (lost_quarantined, lost_dead_letters) =
        lost.as_ref().map_or((0, 0), |lost| (lost.quarantined, lost.dead_letters));
    gauges.set("channeld_build_info", &[&report.version], 1);
    gauges.set("channeld_live", &[], live);
    gauges.set("channeld_ready", &[], *ready);
    let own = report.instances.iter().find(|instance| instance.is_self);
    gauges.set("channeld_instances", &[], report.instances.len().max(1));
    gauges.set("channeld_channels_owned", &[], own.map_or(report.channels.len(), |own| own.channels));
    gauges.set("channeld_channels_not_configured", &[], own.map_or(0, |own| own.not_configured.len()));
    gauges.set("channeld_heartbeat_failing", &[], report.heartbeat_error.is_some());
    if !report.api_keys.is_empty() {
        let refused = report.api_keys.iter().filter(|key| key.is_refused).count();
        gauges.set("channeld_api_keys_refused", &[], refused);
    }
    let left = report.api_key_expires.map(|expires| expires.as_second() - Timestamp::now().as_second());
    gauges.set_known("channeld_api_key_expires_seconds", &[], left);
    gauges.set("channeld_memory_bytes", &[], report.memory_bytes);
    gauges.set("channeld_quarantine_events", &[], quarantine.events);
    gauges.set("channeld_quarantine_bytes", &[], quarantine.bytes);
    gauges.set("channeld_quarantine_full", &[], quarantine.full);
    gauges.set("channeld_dead_letters_kept", &[], dead_letters.events);
    gauges.set("channeld_dead_letters_kept_bytes", &[], dead_letters.bytes);
    gauges.set("channeld_dead_letters_full", &[], dead_letters.full);
    gauges.set("channeld_state_writable", &[], report.state_error.is_none());
    gauges.set("channeld_state_lost_events", &["quarantined"], lost_quarantined);
    gauges.set("channeld_state_lost_events", &["dead_letter"], lost_dead_letters);
}

/// When each signer was last seen in any channel.
fn of_signers(gauges: &mut Gauges, channels: &[ChannelStatus]) {
    let mut last_seen = BTreeMap::new();
    for SignerStatus { signer, last_seen: seen } in channels.iter().flat_map(|channel| &channel.signers) {
        let newest = last_seen.entry(signer.to_string()).or_insert(*seen);
        *newest = (*newest).max(*seen);
    }
    for (signer, seen) in last_seen {
        gauges.set_known("channeld_signer_last_seen_timestamp_seconds", &[&signer], seen.map(Timestamp::as_second));
    }
}

/// The number of live signers of a channel. `None` if no signature was counted since the start.
fn live_signers(channel: &ChannelStatus) -> Option<usize> {
    let since = Timestamp::now() - LIVE;
    let mut seen = channel.signers.iter().filter_map(|signer| signer.last_seen).peekable();
    seen.peek()?;
    Some(seen.filter(|seen| *seen > since).count())
}

fn of_channel(gauges: &mut Gauges, channel: &ChannelStatus) {
    let name = &*channel.channel;
    let required = Some(channel.required_signatures).filter(|required| *required > 0);
    gauges.set_known("channeld_newest_offset", &[name], channel.newest.map(Offset::get));
    gauges.set_known("channeld_processed_offset", &[name], channel.cursor.map(Offset::get));
    gauges.set_known("channeld_lag_events", &[name], channel.lag_events);
    gauges.set_known("channeld_oldest_undelivered_age_seconds", &[name], channel.oldest_undelivered_seconds);
    gauges.set_known("channeld_required_signatures", &[name], required);
    gauges.set_known("channeld_live_signers", &[name], live_signers(channel));
    let state: &str = (&channel.activity).into();
    gauges.set("channeld_channel_state", &[name, state], 1);
    gauges.set_unless_zero("channeld_pending_events", &[name], channel.pending);
    gauges.set_unless_zero("channeld_quarantined_events", &[name], channel.quarantined);
    gauges.set_unless_zero("channeld_quarantined_bytes", &[name], channel.quarantine.bytes);
    gauges.set_unless_zero("channeld_channel_quarantine_full", &[name], channel.quarantine.full);
    let shared_proofs: u64 = channel.shared_proofs.iter().map(|shared| shared.events).sum();
    gauges.set_unless_zero("channeld_channel_shared_proofs", &[name], shared_proofs);
    gauges.set_unless_zero("channeld_channel_shared_workflows", &[name], channel.shared_workflows.len());
    gauges.set_unless_zero("channeld_channel_pending_full", &[name], channel.pending_full);
    gauges.set_unless_zero("channeld_channel_dead_letters_full", &[name], channel.dead_letters.full);
    gauges.set_unless_zero("channeld_replays", &[name], channel.replays.len());
    let left = channel.replays.iter().map(ReplayStatus::progress).map(|read| read.of.saturating_sub(read.done));
    gauges.set_unless_zero("channeld_replay_offsets_left", &[name], left.sum::<u64>());
    gauges.set_unless_zero("channeld_channel_paused_seconds", &[name], paused_seconds(channel.paused));
}

fn of_feed(gauges: &mut Gauges, feed: &FeedStatus, started: Option<Timestamp>) {
    let now = Timestamp::now();
    gauges.set("channeld_feed_waiting", &[], feed.waiting);
    let read = feed.read.or(started).map(Timestamp::as_second);
    gauges.set_known("channeld_feed_consumers_read_timestamp_seconds", &[], read);
    for consumer in feed.consumers.iter().filter(|consumer| consumer.has_cursor) {
        let labels = [&*consumer.consumer, &*consumer.channel];
        gauges.set("channeld_feed_consumer_lag", &labels, consumer.lag);
        gauges.set("channeld_feed_consumer_age_seconds", &labels, consumer.age_seconds(now));
        gauges.set_unless_zero("channeld_feed_consumer_gone", &labels, consumer.gone);
    }
}

fn of_lane(gauges: &mut Gauges, channel: &str, lane: &LaneStatus) {
    let labels = [channel, &*lane.sink];
    gauges.set_known("channeld_lane_processed_offset", &labels, lane.cursor.map(Offset::get));
    gauges.set_known("channeld_lane_lag_events", &labels, lane.lag_events);
    let oldest = lane.oldest_undelivered_seconds.unwrap_or(0);
    gauges.set_unless_zero("channeld_lane_oldest_undelivered_age_seconds", &labels, oldest);
    gauges.set_unless_zero("channeld_lane_queue_batches", &labels, lane.queued_batches);
    gauges.set_unless_zero("channeld_lane_paused_seconds", &labels, paused_seconds(lane.paused));
    let missing = lane.compared.as_ref().map(|compared| compared.missing);
    gauges.set_known("channeld_missing_events", &labels, missing);
    let state: &str = lane.state.into();
    gauges.set("channeld_lane_state", &[channel, &*lane.sink, state], 1);
}

/// The duration of a pause in seconds, at least 1; 0 without a pause.
fn paused_seconds(pause: Option<Pause>) -> i64 {
    pause.map_or(0, |pause| (Timestamp::now().as_second() - pause.since.as_second()).max(1))
}

/// The gauges of a scrape, by name.
#[derive(Default)]
struct Gauges(BTreeMap<&'static str, IntGaugeVec>);

impl Gauges {
    fn set(&mut self, name: &'static str, labels: &[&str], value: impl TryInto<i64>) {
        let gauge = self.0.entry(name).or_insert_with(|| metrics::gauge(name));
        gauge.with_label_values(labels).set(value.try_into().unwrap_or(i64::MAX));
    }

    /// Sets a gauge that readers can take as 0 if it is absent.
    fn set_unless_zero(&mut self, name: &'static str, labels: &[&str], value: impl TryInto<i64>) {
        let value = value.try_into().unwrap_or(i64::MAX);
        if value != 0 {
            self.set(name, labels, value);
        }
    }

    fn set_known(&mut self, name: &'static str, labels: &[&str], value: Option<impl TryInto<i64>>) {
        if let Some(value) = value {
            self.set(name, labels, value);
        }
    }
}

#[cfg(test)]
mod tests;
