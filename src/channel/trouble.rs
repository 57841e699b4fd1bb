//! What goes wrong again and again is said once, and again when it changes or ends.

use std::time::Duration;

use tracing::{debug, error, info, warn};

use crate::record::ChannelRef;
use crate::telemetry::Chain;

use super::reader::ReadError;

/// The trouble that one thing of a channel is in.
#[derive(Debug)]
pub(super) struct Trouble {
    channel: ChannelRef,
    last: Option<&'static str>,
    times: u32,
}

/// As often as this in a row, what should heal by itself does not.
const STUBBORN: u32 = 20;

impl Trouble {
    pub(super) fn new(channel: &ChannelRef) -> Self {
        Self { channel: channel.clone(), last: None, times: 0 }
    }

    /// Says what went wrong, unless it is what went wrong last time.
    pub(super) fn report(&mut self, doing: &'static str, what: &ReadError, wait: Duration) {
        let (channel, kind, wait_ms) = (&self.channel.name, what.name(), wait.as_millis());
        let said = Chain(what);
        self.times = if self.last.replace(kind) == Some(kind) { self.times.saturating_add(1) } else { 1 };
        if self.times == STUBBORN && what.heals() {
            error!(%channel, doing, kind, wait_ms, error = %said, "has failed many times in a row: somebody must look; trying again meanwhile");
        } else if self.times > 1 {
            debug!(%channel, doing, kind, wait_ms, error = %said, "still failing");
        } else if what.heals() {
            warn!(%channel, doing, kind, wait_ms, error = %said, "failed: trying again, said once until it changes");
        } else {
            error!(%channel, doing, kind, wait_ms, error = %said, "failed: somebody must act; trying again meanwhile");
        }
    }

    /// Says that it is over, if there was any.
    pub(super) fn over(&mut self) {
        if let Some(kind) = self.last.take() {
            info!(channel = %self.channel.name, kind, "works again");
        }
    }
}
