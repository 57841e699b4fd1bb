//! What goes wrong again and again is said once, and again when it changes or ends.

use std::time::Duration;

use jiff::Timestamp;
use tracing::field::display;
use tracing::{debug, error, info, warn};

use crate::record::ChannelRef;
use crate::telemetry::Chain;
use crate::trace::TraceId;

use super::reader::ReadError;
use super::status::{Activity, Problem};
use super::teller::Teller;

/// The trouble that one thing of a channel is in. Logged here, and told to whoever asks for the channel's status.
#[derive(Debug)]
pub(super) struct Trouble {
    channel: ChannelRef,
    teller: Teller,
    trace: Option<TraceId>,
    last: Option<&'static str>,
    since: Timestamp,
    times: u32,
}

/// As often as this in a row, what should heal by itself does not.
pub(super) const STUBBORN: u32 = 20;

impl Trouble {
    pub(super) fn new(channel: &ChannelRef, teller: &Teller) -> Self {
        let (channel, teller) = (channel.clone(), teller.clone());
        Self { channel, teller, trace: None, last: None, since: Timestamp::UNIX_EPOCH, times: 0 }
    }

    /// While a batch is dealt with.
    pub(super) fn with(self, trace: Option<TraceId>) -> Self {
        Self { trace, ..self }
    }

    /// Says what went wrong, unless it is what went wrong last time.
    pub(super) fn report(&mut self, doing: &'static str, what: &ReadError, wait: Duration) {
        let (channel, kind, wait_ms) = (&self.channel.name, what.name(), wait.as_millis());
        let (said, trace_id) = (Chain(what), self.trace.map(display));
        if self.last.replace(kind) == Some(kind) {
            self.times = self.times.saturating_add(1);
        } else {
            (self.since, self.times) = (Timestamp::now(), 1);
        }
        self.tell(doing, what, wait);
        if self.times == STUBBORN && what.heals() {
            error!(%channel, trace_id, doing, kind, wait_ms, error = %said, "has failed many times in a row: somebody must look; trying again meanwhile");
        } else if self.times > 1 {
            debug!(%channel, trace_id, doing, kind, wait_ms, error = %said, "still failing");
        } else if what.heals() {
            warn!(%channel, trace_id, doing, kind, wait_ms, error = %said, "failed: trying again, said once until it changes");
        } else {
            error!(%channel, trace_id, doing, kind, wait_ms, error = %said, "failed: somebody must act; trying again meanwhile");
        }
    }

    fn tell(&self, doing: &str, what: &ReadError, wait: Duration) {
        let error = Problem {
            kind: what.name().to_owned(),
            message: format!("{doing}: {}", Chain(what)),
            since: self.since,
            times: self.times,
            needs_attention: self.times >= STUBBORN || !what.heals(),
        };
        let activity = match what {
            ReadError::Api(_) => Activity::Waiting { error },
            ReadError::InDoubt { above, below } => Activity::InDoubt { above: *above, below: *below, error },
        };
        self.teller.waits(activity, wait);
    }

    /// Says that it is over, if there was any.
    pub(super) fn over(&mut self) {
        if let Some(kind) = self.last.take() {
            self.teller.says(Activity::Reading);
            info!(channel = %self.channel.name, trace_id = self.trace.map(display), kind, "works again");
        }
    }
}
