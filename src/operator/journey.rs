//! What is recorded of one event, wherever its channel keeps it.

use super::api::{DeadLetter, GetJourney, Journey};
use super::{Operations, Refusal, look};

impl Operations {
    /// By the ledger of the channel's owner. An event that every sink has dealt with leaves nothing there but the cursors.
    pub(super) async fn journey(&self, request: &GetJourney) -> Result<Journey, Refusal> {
        let GetJourney { channel, offset } = request;
        let ledger = self.ledger(&self.find(channel)?).await?;
        Ok(look(&ledger, |ledger| Journey {
            late: ledger.late().get(offset).cloned(),
            quarantined: ledger.quarantined().get(offset).cloned(),
            dead_letters: ledger
                .dead_letters()
                .iter()
                .filter(|((at, _), _)| at == offset)
                .map(|((_, sink), facts)| DeadLetter { sink: sink.to_string(), facts: facts.clone() })
                .collect(),
        }))
    }
}
