//! Counters for closed sets of words. A counter exists from its first event.
//!
//! Each channel has one counter for each verdict and for each reason of a rejection that occurred. A counter of the Prometheus library
//! stores its own copy of name, help and labels, which is many times larger than the count itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Counter, LabelPair, Metric, MetricFamily, MetricType};

use super::table::{described, labels, well_formed};
use net::tasks::lock;

/// A counter for each channel and each word. The first label is the channel, and the second label is the word.
#[derive(Clone, Debug)]
pub(super) struct WordCounters {
    desc: Arc<Desc>,
    channels: Arc<Mutex<BTreeMap<Arc<str>, ChannelCounters>>>,
}

/// The words of one channel, and their counts. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct ChannelCounters(Arc<Mutex<Counts>>);

type Counts = Vec<(&'static str, u64)>;

impl WordCounters {
    pub(super) fn new(name: &str) -> Self {
        let labels = labels(name).into_iter().map(str::to_owned).collect();
        let desc = well_formed(described(name).variable_labels(labels).describe());
        Self { desc: Arc::new(desc), channels: Arc::default() }
    }

    /// The counters of a channel, with their current values.
    pub(super) fn channel(&self, name: &Arc<str>) -> ChannelCounters {
        lock(&self.channels).entry(name.clone()).or_default().clone()
    }
}

impl ChannelCounters {
    pub(super) fn count(&self, word: &'static str) {
        let mut counts = lock(&self.0);
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }

    fn metrics(&self, labels: &[String], channel: &str) -> Vec<Metric> {
        let metric = |(word, count): &(&str, u64)| metric(labels, [channel, *word], *count);
        lock(&self.0).iter().map(metric).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "the library's counts are floats as well")]
fn metric(labels: &[String], values: [&str; 2], count: u64) -> Metric {
    let mut counter = Counter::default();
    counter.set_value(count as f64);
    let mut metric = Metric::from_label(labels.iter().zip(values).map(|(name, value)| label(name, value)).collect());
    metric.set_counter(counter);
    metric
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut label = LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

impl Collector for WordCounters {
    fn desc(&self) -> Vec<&Desc> {
        vec![&*self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let channels = lock(&self.channels);
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::COUNTER);
        let metrics = channels.iter().flat_map(|(name, counts)| counts.metrics(&self.desc.variable_labels, name));
        family.set_metric(metrics.collect());
        vec![family]
    }
}
