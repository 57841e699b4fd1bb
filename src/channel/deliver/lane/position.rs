//! Compares the sink's own position with the recorded position.
//!
//! A sink can be restored from a backup, replaced or emptied without notice to the daemon. A lane therefore never relies on
//! its cursor alone.
//!
//! | the sink's position | what happened | what the lane does |
//! |---|---|---|
//! | as confirmed | nothing | it continues |
//! | higher | a crash before the commit, or an older state was restored | it offers the events again; the sink skips them by identity |
//! | lower | the sink has lost data | it moves its cursor back and delivers again |
//! | missing | the table or stream was dropped or purged | it waits for an operator: deliver again, or accept |
//!
//! # Cancellation
//!
//! `stop` is observed while waiting. The next run continues from the last commit.

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::deliver::lane::{Halt, Lane};
use crate::status::{Problem, Refill};
use ledger::{self, Change, Cursor};
use proof::event::{EventKey, Offset};
use record::Message;
use sink::{self, Position, Recorded, Resumed, Undelivered};

impl Lane {
    /// Takes over the lane at its sink.
    pub(super) async fn begin(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let (sink, lease) = (self.identity.sink.clone(), &self.shared.owned.claim.lease);
        if lease.is_shared()
            && self.outlet.sink.is_local()
            && self.shared.look(|ledger| ledger.confirmed(&sink).is_some())
        {
            // Another instance may have recorded this confirmation for its own files.
            let to = Cursor { through: self.through };
            self.shared.commit(vec![Change::SetCursor { sink, to }]).await?;
        }
        let resumed = self.resume(stop).await;
        self.accepted();
        resumed
    }

    /// Waits until the sink can accept an offer, and requests its position if a delivery has failed.
    pub(super) async fn ready(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        self.paced(stop).await?;
        if self.confirmed.is_some() && !self.is_sure {
            self.resume(stop).await?;
        }
        Ok(())
    }

    /// Requests the sink's position, and the events that it has beyond the recorded position.
    async fn resume(&mut self, stop: &CancellationToken) -> Result<(), Halt> {
        let (recorded, Resumed { position, held }) = loop {
            let recorded = self.recorded();
            match self.outlet.sink.resume(&recorded).await {
                Ok(Resumed { position: Position::Missing(place), .. }) => self.missing(&place, stop).await?,
                Ok(resumed) => break (recorded, resumed),
                Err(error) => self.refused(error, stop).await?,
            }
        };
        self.is_sure = true;
        let (position, has_lost) = match position {
            Position::At(position) => (position, self.compare(&recorded, position).await?),
            Position::Untracked | Position::Missing(_) => (None, false),
        };
        // These events are settled before anything new is delivered, because a sink looks back only as far as the record
        // goes. The position that includes these events is recorded with them.
        for key in held.intersection(&recorded.owed) {
            self.settle(*key, None, None).await?;
        }
        if has_lost {
            return self.move_back(position).await;
        }
        let highest = position.filter(|position| !self.has_passed(*position));
        self.held = held.into_iter().map(|key| key.offset).filter(|offset| !self.has_passed(*offset)).collect();
        // If an operator chose the cursor, the operator knows that the sink is ahead.
        let highest = highest.max(self.held.last().copied()).filter(|_| recorded.confirmed.is_some());
        if let Some(highest) = highest {
            self.note_ahead(highest);
        }
        Ok(())
    }

    fn recorded(&self) -> Recorded {
        let (owed, confirmed) = self.shared.look(|ledger| {
            let owed = ledger.owed(&self.identity.sink).map(|(key, _)| *key).collect();
            (owed, ledger.confirmed(&self.identity.sink))
        });
        let confirmed = confirmed.map(|ledger::Confirmed { position, last }| sink::Confirmed { position, last });
        let epoch = self.shared.owned.claim.lease.epoch;
        Recorded { lane: self.identity.clone(), epoch, through: self.through, owed, confirmed }
    }

    /// Compares the sink's position with the recorded one. Returns whether the sink has lost data.
    async fn compare(&mut self, recorded: &Recorded, position: Option<Offset>) -> Result<bool, Halt> {
        let sink = self.identity.sink.clone();
        let Some(sink::Confirmed { position: before, last }) = recorded.confirmed else {
            // The cursor was chosen, and the sink has taken it over.
            let confirmed = ledger::Confirmed { position, last: None };
            self.confirmed = Some(confirmed);
            self.shared.commit(vec![Change::Confirm { sink, confirmed }]).await?;
            return Ok(false);
        };
        // A sink that accepted a part of a delivery has at least that part.
        let before = before.max(last.map(|last| last.offset));
        let has_lost = position < before;
        if !has_lost {
            self.confirmed = Some(ledger::Confirmed { position, last });
        }
        Ok(has_lost)
    }

    /// Reports that the sink has events above the cursor: a crash preceded the commit, or an older state was restored.
    fn note_ahead(&self, highest: Offset) {
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        let (position, cursor) = (highest.get(), self.through.map(Offset::get));
        info!(%channel, %sink, position, cursor, "sink is ahead of the state: events that it has are not delivered again");
        self.shared.channel.handle.board().lane(sink).status.ahead = Some(highest);
    }

    /// Moves the cursor back to the sink's position, because the sink has lost data. A sink that was ahead of the cursor may
    /// still be ahead. In that case the cursor stays, because not everything between the two was recorded.
    async fn move_back(&mut self, position: Option<Offset>) -> Result<(), Halt> {
        let through = position.min(self.through);
        let (sink, to) = (self.identity.sink.clone(), Cursor { through });
        let confirmed = ledger::Confirmed { position, last: None };
        let changes =
            vec![Change::SetCursor { sink: sink.clone(), to }, Change::Confirm { sink: sink.clone(), confirmed }];
        self.shared.commit(changes).await?;
        self.shared.hub.detach(&sink);
        let before = self.through;
        (self.through, self.confirmed) = (through, Some(confirmed));
        self.held.clear();
        let channel = &self.identity.channel.name;
        warn!(%channel, %sink, position = position.map(Offset::get), delivered = before.map(Offset::get), "sink has lost data: it has events up to its position, but more were delivered; it was probably restored from a backup; delivering the events above its position again");
        self.accepted();
        let mut board = self.shared.channel.handle.board();
        board.lane_recorded(&sink, through);
        let refill = &mut board.lane(&sink).status.refill;
        let to = refill.as_ref().map(|refill| refill.to).max(before);
        *refill = to.map(|to| Refill { above: through, to });
        Err(Halt::MovedBack)
    }

    /// Handles a sink that stores positions but has none for this lane. Waits until an operator resumes the sink, which
    /// accepts the content that it has.
    async fn missing(&mut self, place: &str, stop: &CancellationToken) -> Result<(), Halt> {
        let (channel, sink) = (self.identity.channel.name.clone(), self.identity.sink.clone());
        let cursor = Cursor { through: self.through };
        let message = format!(
            "{place}, although events up to offset {cursor} were delivered: it was dropped, purged or replaced. Nothing is \
             delivered until you decide. To deliver again, from the start or another offset: `channeld pause {channel}`, \
             `channeld cursor set {channel} --sink {sink} --to earliest --yes` (or --to OFFSET), `channeld resume {channel}`. To \
             accept the sink as it is and continue above {cursor}: `channeld resume {channel} --sink {sink}`"
        );
        error!(%channel, %sink, reason = message, "sink has no position: nothing is delivered until an operator decides");
        let (kind, since) = (Problem::POSITION_MISSING.to_owned(), Timestamp::now());
        let problem = Problem { kind, message, since, times: 1, needs_attention: true };
        let handle = self.shared.channel.handle.clone();
        handle.board().lane(&sink).status.error = Some(problem.clone());
        handle.sink_is_gone(&sink, problem);
        self.goes_on(stop).await?;
        // This removes the earlier confirmation, so the sink takes the cursor over.
        self.shared.commit(vec![Change::SetCursor { sink: sink.clone(), to: cursor }]).await?;
        handle.board().lane(&sink).status.error = None;
        info!(%channel, %sink, cursor = self.through.map(Offset::get), "an operator has accepted the sink's contents");
        Ok(())
    }

    /// Updates the confirmed position of a sink that stores positions.
    pub(super) fn note_answer(&mut self, messages: &[Message], through: Offset, answer: &Result<(), Undelivered>) {
        let Some(confirmed) = &mut self.confirmed else { return };
        match answer {
            Ok(()) => {
                confirmed.position = confirmed.position.max(Some(through));
                confirmed.last = messages.last().map(Message::event_key).or(confirmed.last);
            }
            Err(Undelivered { delivered, .. }) => {
                let last = messages[..*delivered].last().map(Message::event_key);
                confirmed.last = last.or(confirmed.last);
                self.is_sure = false;
            }
        }
    }

    /// Returns the change that records the sink's confirmation, if it is not recorded yet.
    pub(super) fn confirm(&self) -> Option<Change> {
        let (sink, confirmed) = (&self.identity.sink, self.confirmed?);
        let is_news = self.shared.look(|ledger| ledger.confirmed(sink) != Some(confirmed));
        is_news.then(|| Change::Confirm { sink: sink.clone(), confirmed })
    }

    /// Returns whether the lane has yet to deliver a late event. The sink may turn out to have it already.
    pub(super) fn is_owed(&self, key: &EventKey) -> bool {
        self.shared.look(|ledger| ledger.owes(&self.identity.sink, key))
    }
}
