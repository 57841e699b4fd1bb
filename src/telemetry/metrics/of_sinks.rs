//! What sinks count of themselves, beside what their lanes do.

use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounterVec;
use reqwest::StatusCode;
use strum::{IntoStaticStr, VariantArray};

use super::Metrics;

/// The code of a request without an answer.
const NO_ANSWER: &str = "none";

/// What is done to the files of a sink beside writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Upkeep {
    /// Closing a file and beginning the next.
    Rotate,
    /// Compressing a closed file.
    Compress,
    /// Deleting closed files whose time is over.
    Delete,
    /// The link to the file closed last, what a crash has left, and the index.
    Other,
}

/// Counts the failures of one sink's upkeep. By default nothing is counted.
#[derive(Clone, Debug, Default)]
pub struct UpkeepFailures(Option<(IntCounterVec, Arc<str>)>);

impl UpkeepFailures {
    /// It failed once more.
    pub fn count(&self, what: Upkeep) {
        if let Some((failures, sink)) = &self.0 {
            failures.with_label_values(&[&**sink, what.into()]).inc();
        }
    }
}

impl Metrics {
    /// The failures of one sink's upkeep, which show from zero.
    pub fn upkeep_failures(&self, sink: &str) -> UpkeepFailures {
        for what in Upkeep::VARIANTS {
            self.upkeep_failures.with_label_values(&[sink, what.into()]);
        }
        UpkeepFailures(Some((self.upkeep_failures.clone(), sink.into())))
    }

    /// A webhook of a channel was sent a request; without a status it did not answer.
    pub fn webhook_asked(&self, channel: &str, sink: &str, took: Duration, status: Option<StatusCode>) {
        let code = match status {
            None => NO_ANSWER.to_owned(),
            Some(known) if known.canonical_reason().is_some() => known.as_str().to_owned(),
            // What an endpoint makes up is no label.
            Some(unknown) => format!("{}xx", unknown.as_u16() / 100),
        };
        self.webhook_requests.with_label_values(&[channel, sink, &code]).inc();
        self.webhook_duration.with_label_values(&[channel, sink]).observe(took.as_secs_f64());
    }
}
