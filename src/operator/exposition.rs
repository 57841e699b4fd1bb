//! The scrape: what is counted, and gauges made of the report of this moment.
//!
//! # Invariants
//!
//! * **Of the configuration in force.** What was counted of a channel or a sink that is configured no more is kept, in case
//!   it comes back, and not shown.

use std::collections::BTreeMap;

use prometheus::proto::{LabelPair, Metric};
use prometheus::{GaugeVec, Registry, TextEncoder};
use strum::VariantNames;

use super::Report;
use crate::channel::{Activity, ChannelStatus, LaneState, LaneStatus};
use crate::metrics::{self, Metrics};

/// The whole text.
pub(super) fn text(metrics: &Metrics, report: &Report, live: bool) -> prometheus::Result<String> {
    let configured = report.channels.iter().map(|channel| (&*channel.channel, channel)).collect();
    let mut families = metrics.registry.gather();
    for family in &mut families {
        let shown = family.take_metric().into_iter().filter(|metric| is_configured(metric, &configured));
        family.set_metric(shown.collect());
    }
    families.retain(|family| !family.get_metric().is_empty());
    let mut gauges = Gauges::default();
    of_process(&mut gauges, report, live);
    for channel in &report.channels {
        of_channel(&mut gauges, channel);
        channel.lanes.iter().for_each(|lane| of_lane(&mut gauges, &channel.channel, lane));
    }
    let registry = Registry::new();
    gauges.0.into_values().try_for_each(|gauge| registry.register(Box::new(gauge)))?;
    families.extend(registry.gather());
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families)
}

fn is_configured(metric: &Metric, configured: &BTreeMap<&str, &ChannelStatus>) -> bool {
    let label = |name| metric.get_label().iter().find(|label| label.name() == name).map(LabelPair::value);
    let has_sink = |channel: &&ChannelStatus| {
        label("sink").is_none_or(|sink| channel.lanes.iter().any(|lane| *lane.sink == *sink))
    };
    label("channel").is_none_or(|channel| configured.get(channel).is_some_and(has_sink))
}

fn of_process(gauges: &mut Gauges, report: &Report, live: bool) {
    let Report { ready, quarantine, dead_letters, lost, .. } = report;
    let (quarantined, given_up) = lost.as_ref().map_or((0, 0), |lost| (lost.quarantined, lost.dead_letters));
    gauges.set("channeld_build_info", &[&report.version], 1.0);
    gauges.set("channeld_live", &[], flag(live));
    gauges.set("channeld_ready", &[], flag(*ready));
    gauges.set("channeld_quarantine_events", &[], float(quarantine.events));
    gauges.set("channeld_quarantine_bytes", &[], float(quarantine.bytes));
    gauges.set("channeld_quarantine_full", &[], flag(quarantine.full));
    gauges.set("channeld_dead_letters_kept", &[], float(dead_letters.events));
    gauges.set("channeld_dead_letters_kept_bytes", &[], float(dead_letters.bytes));
    gauges.set("channeld_dead_letters_full", &[], flag(dead_letters.full));
    gauges.set("channeld_state_writable", &[], flag(report.state_error.is_none()));
    gauges.set("channeld_state_lost_events", &["quarantined"], float(quarantined));
    gauges.set("channeld_state_lost_events", &["dead_letter"], float(given_up));
}

fn of_channel(gauges: &mut Gauges, channel: &ChannelStatus) {
    let name = &*channel.channel;
    let required = Some(channel.required_signatures).filter(|required| *required > 0);
    gauges.set("channeld_newest_offset", &[name], channel.newest.map(|offset| float(offset.get())));
    gauges.set("channeld_processed_offset", &[name], channel.processed.map(|offset| float(offset.get())));
    gauges.set("channeld_lag_events", &[name], channel.lag_events.map(float));
    gauges.set("channeld_oldest_undelivered_age_seconds", &[name], channel.oldest_undelivered_seconds.map(float));
    gauges.set("channeld_late_proofs", &[name], float(channel.late));
    gauges.set("channeld_required_signatures", &[name], required.map(float));
    gauges.set("channeld_quarantined_events", &[name], float(channel.quarantined));
    gauges.set("channeld_quarantined_bytes", &[name], float(channel.quarantine.bytes));
    gauges.set("channeld_channel_quarantine_full", &[name], flag(channel.quarantine.full));
    gauges.set("channeld_channel_late_full", &[name], flag(channel.late_full));
    gauges.set("channeld_channel_dead_letters_full", &[name], flag(channel.dead_letters.full));
    let state: &str = (&channel.activity).into();
    for known in Activity::VARIANTS {
        gauges.set("channeld_channel_state", &[name, known], flag(*known == state));
    }
    for signer in &channel.signers {
        let last_seen = signer.last_seen.map(|last_seen| float(last_seen.as_second()));
        gauges.set("channeld_signer_last_seen_timestamp_seconds", &[name, &signer.signer.to_string()], last_seen);
    }
}

fn of_lane(gauges: &mut Gauges, channel: &str, lane: &LaneStatus) {
    let labels = [channel, &*lane.sink];
    gauges.set("channeld_lane_processed_offset", &labels, lane.cursor.map(|offset| float(offset.get())));
    gauges.set("channeld_lane_lag_events", &labels, lane.lag_events.map(float));
    gauges.set("channeld_lane_oldest_undelivered_age_seconds", &labels, lane.oldest_undelivered_seconds.map(float));
    gauges.set("channeld_lane_queue_batches", &labels, float(lane.queued_batches));
    let state: &str = lane.state.into();
    for known in LaneState::VARIANTS {
        gauges.set("channeld_lane_state", &[channel, &*lane.sink, known], flag(*known == state));
    }
}

/// Gauges in the making, by their names.
#[derive(Default)]
struct Gauges(BTreeMap<&'static str, GaugeVec>);

impl Gauges {
    /// Sets a gauge to a value, where it is known.
    fn set(&mut self, name: &'static str, labels: &[&str], value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.0.entry(name).or_insert_with(|| metrics::gauge(name)).with_label_values(labels).set(value);
        }
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Above 2⁵³, where it is no more exact, nothing here has a value that is real.
#[expect(clippy::cast_precision_loss, reason = "Prometheus knows no other numbers")]
fn float(number: impl TryInto<i64>) -> f64 {
    number.try_into().unwrap_or(i64::MAX) as f64
}
