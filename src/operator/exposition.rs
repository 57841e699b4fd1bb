//! The scrape: what is counted, and gauges made of the report of this moment.
//!
//! # Invariants
//!
//! * **Of the configuration in force.** What was counted of a channel or a sink that is configured no more is kept, in case
//!   it comes back, and not shown.

use std::collections::BTreeSet;

use prometheus::proto::{LabelPair, Metric, MetricFamily};
use prometheus::{GaugeVec, Opts, Registry, TextEncoder};

use super::{ChannelReport, LaneReport, Report};
use crate::channel::{Activity, LaneCondition};
use crate::metrics::Metrics;

/// The whole text.
pub(super) fn text(metrics: &Metrics, report: &Report, live: bool) -> prometheus::Result<String> {
    let configured = Configured::by(report);
    let counted = metrics.gather().into_iter().map(|family| configured.only(family));
    let counted = counted.filter(|family| !family.get_metric().is_empty());
    let mut families: Vec<_> = counted.chain(gauges(report, live)?).collect();
    families.sort_by(|one, other| one.name().cmp(other.name()));
    TextEncoder::new().encode_to_string(&families)
}

/// The values that labels may have now.
struct Configured<'r> {
    channels: BTreeSet<&'r str>,
    lanes: BTreeSet<(&'r str, &'r str)>,
}

impl<'r> Configured<'r> {
    fn by(report: &'r Report) -> Self {
        let channels = report.channels.iter().map(|channel| &*channel.channel).collect();
        Self { channels, lanes: lanes(report).map(|(channel, lane)| (&*channel.channel, &*lane.sink)).collect() }
    }

    fn only(&self, mut family: MetricFamily) -> MetricFamily {
        let metrics = family.take_metric().into_iter().filter(|metric| self.has(metric)).collect();
        family.set_metric(metrics);
        family
    }

    fn has(&self, metric: &Metric) -> bool {
        let label = |name| metric.get_label().iter().find(|label| label.name() == name).map(LabelPair::value);
        match (label("channel"), label("sink")) {
            (Some(channel), Some(sink)) => self.lanes.contains(&(channel, sink)),
            (Some(channel), None) => self.channels.contains(channel),
            _ => true,
        }
    }
}

fn lanes(report: &Report) -> impl Iterator<Item = (&ChannelReport, &LaneReport)> {
    report.channels.iter().flat_map(|channel| channel.lanes.iter().map(move |lane| (channel, lane)))
}

fn gauges(report: &Report, live: bool) -> prometheus::Result<Vec<MetricFamily>> {
    let gauges = Gauges(Registry::new());
    of_process(&gauges, report, live)?;
    of_channels(&gauges, report)?;
    of_lanes(&gauges, report)?;
    Ok(gauges.0.gather())
}

fn of_process(gauges: &Gauges, report: &Report, live: bool) -> prometheus::Result<()> {
    gauges.each("channeld_build_info", "Always 1.", ["version"], [([&*report.version], 1.0)])?;
    gauges.one("channeld_live", "Whether nothing stands still that should move.", flag(live))?;
    gauges.one("channeld_ready", "Whether everything is as it should be.", flag(report.ready))?;
    let kept = report.quarantine;
    gauges.one("channeld_quarantine_events", "Events in the quarantine, all channels together.", float(kept.events))?;
    gauges.one("channeld_quarantine_bytes", "Bytes of all quarantined events.", float(kept.bytes))?;
    gauges.one("channeld_quarantine_full", "Whether the quarantine of a channel is full.", flag(kept.full))?;
    let kept = report.dead_letters;
    gauges.one("channeld_dead_letters_kept", "Events that sinks gave up on and that are kept.", float(kept.events))?;
    gauges.one("channeld_dead_letters_kept_bytes", "Their bytes.", float(kept.bytes))?;
    gauges.one("channeld_dead_letters_full", "Whether the dead letters of a channel are full.", flag(kept.full))?;
    gauges.one("channeld_state_writable", "Whether the state can be written.", flag(report.state_error.is_none()))?;
    let (quarantined, dead_letters) = report.lost.as_ref().map_or((0, 0), |lost| (lost.quarantined, lost.dead_letters));
    let lost = [(["quarantined"], float(quarantined)), (["dead_letter"], float(dead_letters))];
    gauges.each("channeld_state_lost_events", "Events that a damaged database has lost.", ["kind"], lost)
}

fn of_channels(gauges: &Gauges, report: &Report) -> prometheus::Result<()> {
    let each = |name, help, value: fn(&ChannelReport) -> Option<f64>| {
        let known = report.channels.iter().filter_map(|channel| Some(([&*channel.channel], value(channel)?)));
        gauges.each(name, help, ["channel"], known)
    };
    each("channeld_newest_offset", "The highest offset that the service has shown and that is believed.", |channel| {
        channel.newest.map(|offset| float(offset.get()))
    })?;
    each("channeld_processed_offset", "The last offset that every sink has dealt with.", |channel| {
        channel.processed.map(|offset| float(offset.get()))
    })?;
    each("channeld_lag_events", "At most so many events are undelivered.", |channel| channel.lag_events.map(float))?;
    each("channeld_oldest_undelivered_age_seconds", "The age of the oldest undelivered event.", |channel| {
        channel.oldest_undelivered_seconds.map(float)
    })?;
    each("channeld_late_proofs", "Events set aside because their proof has not come.", |channel| {
        Some(float(channel.late as u64))
    })?;
    each("channeld_required_signatures", "How many distinct signers an event needs.", |channel| {
        Some(float(channel.required_signatures as u64)).filter(|required| *required > 0.0)
    })?;
    each("channeld_quarantined_events", "Events of the channel in the quarantine.", |channel| {
        Some(float(channel.quarantined as u64))
    })?;
    each("channeld_quarantined_bytes", "Their bytes.", |channel| Some(float(channel.quarantine.bytes)))?;
    each("channeld_channel_quarantine_full", "Whether the channel's quarantine is full.", |channel| {
        Some(flag(channel.quarantine.full))
    })?;
    each("channeld_channel_late_full", "Whether no more of the channel's events may wait for a proof.", |channel| {
        Some(flag(channel.late_full))
    })?;
    each("channeld_channel_dead_letters_full", "Whether the channel's dead letters are full.", |channel| {
        Some(flag(channel.dead_letters.full))
    })?;
    let states = report.channels.iter().flat_map(|channel| {
        let is = |state| flag(channel.activity.name() == state);
        Activity::NAMES.into_iter().map(move |state| ([&*channel.channel, state], is(state)))
    });
    gauges.each("channeld_channel_state", "1 for the state that reading is in.", ["channel", "state"], states)?;
    let signers = report.channels.iter().flat_map(|channel| {
        let seen = |last: jiff::Timestamp| float(last.as_second());
        let signers = channel.signers.iter();
        signers.filter_map(move |signer| Some(([&*channel.channel, &*signer.signer], seen(signer.last_seen?))))
    });
    let (name, help) =
        ("channeld_signer_last_seen_timestamp_seconds", "When a signature of this signer was last counted.");
    gauges.each(name, help, ["channel", "signer"], signers)
}

fn of_lanes(gauges: &Gauges, report: &Report) -> prometheus::Result<()> {
    let each = |name, help, value: fn(&LaneReport) -> Option<f64>| {
        let known = lanes(report).filter_map(|(channel, lane)| Some(([&*channel.channel, &*lane.sink], value(lane)?)));
        gauges.each(name, help, ["channel", "sink"], known)
    };
    each("channeld_lane_processed_offset", "The last offset that this sink has dealt with.", |lane| {
        lane.cursor.map(|offset| float(offset.get()))
    })?;
    each("channeld_lane_lag_events", "At most so many events are undelivered to this sink.", |lane| {
        lane.lag_events.map(float)
    })?;
    each("channeld_lane_oldest_undelivered_age_seconds", "The age of the oldest of them.", |lane| {
        lane.oldest_undelivered_seconds.map(float)
    })?;
    each("channeld_lane_queue_batches", "Batches that were read and wait for this sink.", |lane| {
        Some(float(lane.queued_batches as u64))
    })?;
    let states = lanes(report).flat_map(|(channel, lane)| {
        let is = |state| flag(lane.status.state == state);
        let labels = |state: LaneCondition| [&*channel.channel, &*lane.sink, state.name()];
        LaneCondition::ALL.into_iter().map(move |state| (labels(state), is(state)))
    });
    gauges.each("channeld_lane_state", "1 for the state that the lane is in.", ["channel", "sink", "state"], states)
}

/// Gauges in the making.
struct Gauges(Registry);

impl Gauges {
    fn each<'l, const LABELS: usize>(
        &self,
        name: &str,
        help: &str,
        labels: [&str; LABELS],
        samples: impl IntoIterator<Item = ([&'l str; LABELS], f64)>,
    ) -> prometheus::Result<()> {
        let gauges = GaugeVec::new(Opts::new(name, help), &labels)?;
        for (labels, value) in samples {
            gauges.with_label_values(&labels).set(value);
        }
        self.0.register(Box::new(gauges))
    }

    fn one(&self, name: &str, help: &str, value: f64) -> prometheus::Result<()> {
        self.each(name, help, [], [([], value)])
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
