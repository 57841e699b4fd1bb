//! Returns the recorded data of events.

use crate::api::{DeadLetter, GetAccounts, GetJourney, Journey};
use crate::{Operations, Refusal};
use channel::Accounts;
use net::tasks::lock;

impl Operations {
    /// Returns the events of a channel that are not necessarily in its sinks, with the reason for each.
    pub(crate) async fn accounts(&self, request: &GetAccounts) -> Result<Accounts, Refusal> {
        let channel = self.find(&request.channel)?;
        let ledger = self.ledger(&channel).await?;
        Ok(self.handles.of(channel.id).accounts(&ledger).await)
    }

    /// Reads the ledger of the channel's owner. When every sink is finished with an event, only the cursors remain. A late
    /// delivery is known only to the instance that made it.
    pub(crate) async fn journey(&self, request: &GetJourney) -> Result<Journey, Refusal> {
        let GetJourney { channel, offset } = request;
        let channel = self.find(channel)?;
        let ledger = self.ledger(&channel).await?;
        let delivered_late = self.handles.of(channel.id).board().late.of(*offset).cloned().collect();
        let ledger = lock(&ledger);
        let dead_letters = ledger.dead_letters().iter().filter(|((key, _), _)| key.offset == *offset);
        Ok(Journey {
            delivered_late,
            late: ledger.late_at(*offset).next().cloned(),
            quarantined: ledger.quarantined_at(*offset).next().cloned(),
            dead_letters: dead_letters.map(DeadLetter::of).collect(),
        })
    }
}
