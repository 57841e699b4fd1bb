//! Polls at an operator's request, before the next scheduled poll.

use jiff::Timestamp;

use super::api::PollNow;
use super::{Operations, Refusal};

impl Operations {
    /// Wakes the channel if it is waiting for its next poll.
    pub(super) async fn poll_now(&self, request: &PollNow) -> Result<Timestamp, Refusal> {
        let channel = self.find(&request.channel)?;
        // If another instance owns the channel, the request is forwarded to it.
        let handle = self.handles.of(channel.id);
        if handle.owned().is_none() {
            drop(self.owned(&channel).await?);
        }
        let asked = Timestamp::now();
        handle.poll_now();
        Ok(asked)
    }
}
