//! A poll that an operator asks for, in place of the next one in its turn.

use jiff::Timestamp;

use super::api::PollNow;
use super::{Operations, Refusal};

impl Operations {
    /// Wakes the channel where it waits for its next poll.
    pub(super) async fn poll_now(&self, request: &PollNow) -> Result<Timestamp, Refusal> {
        let channel = self.find(&request.channel)?;
        // Where another instance owns it, that one is asked.
        let handle = self.handles.of(channel.id);
        if handle.owned().is_none() {
            drop(self.owned(&channel).await?);
        }
        let asked = Timestamp::now();
        handle.poll_now();
        Ok(asked)
    }
}
