//! The metrics of the process as the operating system knows it.

use jiff::Timestamp;
use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Gauge, MetricFamily};

/// The metrics of the library, with another start of the process. The library computes the start from the boot time, which
/// `ProcSubset=pid` of the systemd units hides.
pub(super) struct ProcessMetrics {
    pub(super) collector: ProcessCollector,
    pub(super) started: Timestamp,
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.collector.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.collector.collect();
        let starts = families.iter_mut().filter(|family| family.name() == "process_start_time_seconds");
        for metric in starts.flat_map(MetricFamily::mut_metric) {
            let mut started = Gauge::default();
            started.set_value(self.started.as_duration().as_secs_f64());
            metric.set_gauge(started);
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_starts_at_the_given_time() {
        let collector = ProcessCollector::for_self();
        let families = ProcessMetrics { collector, started: Timestamp::from_second(7).unwrap() }.collect();
        let start = families.iter().find(|family| family.name() == "process_start_time_seconds").unwrap();
        assert!((start.get_metric()[0].get_gauge().get_value() - 7.0).abs() < f64::EPSILON);
        assert!(families.len() > 1);
    }
}
