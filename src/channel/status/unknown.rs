//! The values of the service that this version does not know: reported once per value, on the board, in a metric and in the
//! log.

use std::sync::Arc;

use jiff::Timestamp;
use tracing::warn;

use crate::channel::controls::Handle;
use crate::status::{ChannelStatus, UnknownValueStatus};
use proof::event::{Offset, UnknownValue};
use telemetry::metrics::ChannelMetrics;

/// The maximum number of unknown values that the board of a channel lists.
const MAX_LISTED: usize = 50;

/// The distinct unknown values in a range of events, each with the offset of its first event. The board is locked once per
/// range, even if every event has a new member.
#[derive(Debug, Default)]
pub(crate) struct FoundValues(Vec<(UnknownValue, Option<Offset>)>);

impl FoundValues {
    pub(crate) fn note(&mut self, offset: Offset, value: &UnknownValue) {
        if self.0.len() < MAX_LISTED && !self.0.iter().any(|(known, _)| known == value) {
            self.0.push((value.clone(), Some(offset)));
        }
    }
}

/// Reports the unknown values of one channel.
#[derive(Clone, Debug)]
pub(crate) struct UnknownReporter {
    pub(crate) handle: Arc<Handle>,
    pub(crate) metrics: Arc<ChannelMetrics>,
}

impl UnknownReporter {
    /// Reports an unknown value that is not part of an event.
    pub(crate) fn report_one(&self, value: UnknownValue) {
        self.report(FoundValues(vec![(value, None)]));
    }

    /// Lists, logs and counts each unknown value, unless it is already listed. If the list is full, a value that is not listed is
    /// counted each time.
    pub(crate) fn report(&self, FoundValues(found): FoundValues) {
        if found.is_empty() {
            return;
        }
        let ChannelStatus { channel, unknown_values: listed, .. } = &mut self.handle.board().status;
        for (UnknownValue { what, value }, offset) in found {
            if listed.iter().any(|known| known.what == what && known.value == value) {
                continue;
            }
            self.metrics.unknown_value(what);
            if listed.len() < MAX_LISTED {
                let part = <&str>::from(what);
                warn!(%channel, what = part, %value, offset = offset.map(Offset::get), "the service sent a value that this version does not know: nothing is lost; look for a newer version of channeld");
                listed.push(UnknownValueStatus { what, value, offset, since: Timestamp::now() });
                if listed.len() == MAX_LISTED {
                    warn!(%channel, values = MAX_LISTED, "more values that this version does not know are only counted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proof::event::{ChannelId, UnknownPart};
    use record::ChannelRef;
    use telemetry::metrics::Metrics;

    fn reporter() -> (Metrics, UnknownReporter) {
        let metrics = Metrics::default();
        let channel = metrics.channel(&ChannelRef { name: "c".into(), id: ChannelId::default() });
        (metrics, UnknownReporter { handle: Arc::default(), metrics: Arc::new(channel) })
    }

    fn value(text: &str) -> UnknownValue {
        UnknownValue::new(UnknownPart::ErrorType, text)
    }

    fn counted(metrics: &Metrics) -> f64 {
        let families = metrics.registry.gather();
        let family = families.iter().find(|family| family.name() == "channeld_unknown_values_total").unwrap();
        family.get_metric().iter().map(|metric| metric.get_counter().get_value()).sum()
    }

    #[test]
    fn a_value_is_news_once() {
        let (metrics, reporter) = reporter();
        for text in ["TEAPOT", "TEAPOT", "KETTLE", "TEAPOT"] {
            reporter.report_one(value(text));
        }
        let listed = reporter.handle.board().status.unknown_values.clone();
        assert_eq!(listed.iter().map(|known| &*known.value).collect::<Vec<_>>(), ["TEAPOT", "KETTLE"]);
        assert_eq!(counted(&metrics).to_string(), "2");
    }

    #[test]
    fn the_list_is_bounded_and_later_values_are_counted() {
        let (metrics, reporter) = reporter();
        for number in 0..80 {
            reporter.report_one(value(&format!("T{number}")));
        }
        reporter.report_one(value("T0"));
        assert_eq!(reporter.handle.board().status.unknown_values.len(), MAX_LISTED);
        assert_eq!(counted(&metrics).to_string(), "80");
    }
}
