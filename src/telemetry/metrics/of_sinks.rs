//! Metrics that sinks count themselves, in addition to the metrics of their lanes.

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounterVec;
use reqwest::StatusCode;
use strum::{IntoStaticStr, VariantArray};

use super::Metrics;

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
}

impl Metrics {
    /// The maintenance failures of one sink. The counters exist from the start with value zero.
    pub fn upkeep_failures(&self, sink: &str) -> UpkeepFailures {
        for what in Upkeep::VARIANTS {
            self.upkeep_failures.with_label_values(&[sink, what.into()]);
        }
        UpkeepFailures(Some((self.upkeep_failures.clone(), sink.into())))
    }

    /// Counts a webhook request of a channel. `status` is `None` if the endpoint did not answer.
    pub fn webhook_asked(&self, channel: &str, sink: &str, took: Duration, status: Option<StatusCode>) {
        let code = match status {
            None => NO_ANSWER.to_owned(),
            Some(known) if known.canonical_reason().is_some() => known.as_str().to_owned(),
            // An endpoint can invent status codes, so an unknown code is not used as a label.
            Some(unknown) => format!("{}xx", unknown.as_u16() / 100),
        };
        self.webhook_requests.with_label_values(&[channel, sink, &code]).inc();
        self.webhook_duration.with_label_values(&[channel, sink]).observe(took.as_secs_f64());
    }
}
