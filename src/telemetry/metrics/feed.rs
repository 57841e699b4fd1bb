//! The metrics of the feed.

use prometheus::IntCounterVec;
use reqwest::StatusCode;
use strum::{IntoStaticStr, VariantArray};

use super::Metrics;

/// The calls of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FeedCall {
    /// The list of channels.
    Channels,
    /// A page of events.
    Events,
    /// Server-sent events.
    Stream,
    /// A lease of the next events.
    Lease,
    /// The end of a lease, which moves the cursor.
    Commit,
    /// A request to a path that is none of the calls.
    Other,
}

/// Counts the requests to the feed. By default nothing is counted.
#[derive(Clone, Debug, Default)]
pub struct FeedMetrics(Option<Counters>);

#[derive(Clone, Debug)]
struct Counters {
    requests: IntCounterVec,
    gone: IntCounterVec,
}

impl Metrics {
    /// The metrics of the feed. The successful requests are counted from zero.
    pub fn feed(&self) -> FeedMetrics {
        for call in FeedCall::VARIANTS {
            let status = match call {
                FeedCall::Channels | FeedCall::Events | FeedCall::Stream | FeedCall::Lease => StatusCode::OK,
                FeedCall::Commit => StatusCode::NO_CONTENT,
                FeedCall::Other => continue,
            };
            self.feed_requests.with_label_values(&[<&str>::from(call), status.as_str()]);
        }
        FeedMetrics(Some(Counters { requests: self.feed_requests.clone(), gone: self.feed_gone.clone() }))
    }
}

impl FeedMetrics {
    /// Counts an answered request. A stream counts when it begins.
    pub fn answered(&self, call: FeedCall, status: StatusCode) {
        if let Some(Counters { requests, .. }) = &self.0 {
            requests.with_label_values(&[call.into(), status.as_str()]).inc();
        }
    }

    /// Counts a client that was told that the events at its position were deleted.
    pub fn gone(&self, channel: &str) {
        if let Some(Counters { gone, .. }) = &self.0 {
            gone.with_label_values(&[channel]).inc();
        }
    }
}
