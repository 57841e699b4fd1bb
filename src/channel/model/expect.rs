//! The required results: the fate of each event, and the state after each run.

use std::collections::{BTreeMap, BTreeSet};

use crate::deliver::upcoming::MAX_JOINED;
use ledger::Ledger;
use ledger::testing::Disk;
use proof::event::{EventKey, Offset};

use super::history::{Damage, EventKind, Forgery, SameId};
use super::world::{Inner, World};
use super::{pool, sink_name};

/// The time in seconds within which an event is requested again after its proof has arrived. This is the longest wait between
/// two requests, plus the time for the answers about other events.
const ASKED_AGAIN: u64 = 120;

/// The required result for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Each lane receives the event, and the event is not in the quarantine.
    Delivered,
    /// No lane receives the event, and the event is not in the quarantine.
    Dropped,
    /// The event is in the quarantine for this reason.
    Quarantined(&'static str),
    /// The event is in the quarantine, for any reason.
    Rejected,
    /// Each lane receives the event, or the event is in the quarantine.
    Either,
}

/// Whether the cursor passes an event that no other event follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    Yes,
    No,
    Perhaps,
}

fn is_quarantined(ledger: &Ledger, offset: Offset) -> bool {
    ledger.quarantined_at(offset).next().is_some()
}

/// The ledger as it is on disk.
pub(super) fn recorded(disk: &Disk) -> Ledger {
    Ledger::load(disk.entries(pool::channel()), usize::MAX).unwrap().0
}

fn through(ledger: &Ledger, lane: usize) -> Option<Offset> {
    ledger.cursor(&sink_name(lane)).unwrap_or_default().through
}

impl World {
    /// Returns whether everything is published, and every lane has all events that it will ever receive.
    pub(super) fn is_settled(&self, disk: &Disk) -> bool {
        let inner = self.lock();
        let ledger = recorded(disk);
        if ledger.contradiction().is_some() {
            // An operator has to accept the service's current events.
            return true;
        }
        let there = |at: &usize| match self.fate(&inner, *at) {
            Fate::Dropped => true,
            Fate::Quarantined(_) | Fate::Rejected => is_quarantined(&ledger, self.offsets[*at]),
            Fate::Delivered | Fate::Either => {
                let offset = self.offsets[*at];
                let may_be_quarantined = !inner.accepted;
                (may_be_quarantined && is_quarantined(&ledger, offset))
                    || inner
                        .lanes
                        .iter()
                        .enumerate()
                        .all(|(number, lane)| self.is_below_limit(number, *at) || inner.has(lane, *at, offset))
            }
        };
        self.visible(&inner).len() == self.offsets.len()
            && ledger.late().is_empty()
            && ledger.replays().values().all(|replay| replay.state.has_ended())
            && (0..inner.lanes.len()).all(|lane| self.cursor_is_right(&inner, &ledger, lane).is_ok())
            && self.readable().all(|at| there(&at))
    }

    /// Checks the state after everything is settled.
    pub(super) fn check_end(&self, disk: &Disk) -> Result<(), String> {
        let mut inner = self.lock();
        let ledger = recorded(disk);
        match ledger.contradiction() {
            Some(contradiction) if inner.accepted => {
                return Err(format!("still after it was accepted: {contradiction:?}"));
            }
            // The operator acts next.
            Some(_) => return Ok(()),
            None => {}
        }
        if !ledger.late().is_empty() {
            return Err(format!("still waiting for proofs: {:?}", ledger.late()));
        }
        if let Some((id, replay)) = ledger.replays().iter().find(|(_, replay)| !replay.state.has_ended()) {
            return Err(format!("replay {id} has not ended: {replay:?}"));
        }
        if !self.history.replays.is_empty() {
            check_proofs(disk)?;
        }
        if let Some(number) = inner.lanes.iter().position(|lane| !lane.must_repeat.is_empty()) {
            return Err(format!("sink {number} never received {:?} again", inner.lanes[number].must_repeat));
        }
        for (EventKey { offset, .. }, facts) in ledger.quarantined() {
            let found = self.offsets.binary_search(offset);
            let fate = found.map(|at| self.fate(&inner, at));
            match fate {
                _ if inner.is_restored() && facts.reason == "contradiction" => {}
                Ok(Fate::Dropped) if found.is_ok_and(|at| inner.seen[at].denied) => {}
                Ok(Fate::Quarantined(reason)) if reason == facts.reason => {}
                Ok(Fate::Rejected | Fate::Either) => {}
                _ => return Err(format!("offset {offset} is in the quarantine as {}: {fate:?}", facts.reason)),
            }
        }
        for at in self.readable() {
            let (offset, fate) = (self.offsets[at], self.fate(&inner, at));
            let quarantined = is_quarantined(&ledger, offset) && !inner.accepted;
            if matches!(fate, Fate::Quarantined(_) | Fate::Rejected) && !quarantined {
                return Err(format!("offset {offset} is not in the quarantine: {fate:?}"));
            }
            for (number, lane) in inner.lanes.iter().enumerate() {
                let wanted = matches!(fate, Fate::Delivered | Fate::Either);
                if wanted && !quarantined && !self.is_below_limit(number, at) && !inner.has(lane, at, offset) {
                    return Err(format!("sink {number} never received offset {offset}: {fate:?}"));
                }
            }
        }
        for lane in 0..inner.lanes.len() {
            self.cursor_is_right(&inner, &ledger, lane)?;
        }
        let below = |number| self.readable().filter(move |at| self.is_below_limit(number, *at)).count() as u64;
        let below: u64 = (0..inner.lanes.len()).map(below).sum();
        inner.totals.below_limit += below;
        inner.totals.quarantined += ledger.quarantined().len() as u64;
        inner.totals.events += self.offsets.len() as u64;
        Ok(())
    }

    /// Returns an error if the state between two runs is wrong. `in_order` tells whether the previous run ended in order. An
    /// event that a sink has accepted but that is not recorded may be delivered again.
    pub(super) fn check_between(&self, disk: &Disk, in_order: bool) -> Result<(), String> {
        let mut inner = self.lock();
        let ledger = recorded(disk);
        for number in 0..inner.lanes.len() {
            let (sink, through) = (sink_name(number), through(&ledger, number));
            let is_recorded =
                |offset: &Offset| Some(*offset) <= through && !ledger.owed(&sink).any(|(key, _)| key.offset == *offset);
            let lane = &inner.lanes[number];
            for at in self.readable() {
                let offset = self.offsets[at];
                let dropped = self.fate(&inner, at) == Fate::Dropped || self.is_below_limit(number, at);
                // These events are delivered again or late, so they are checked at the end.
                if lane.lost.contains(&offset)
                    || self.history.hidden_for(at).is_some()
                    || inner.renewed_at(at).is_some()
                {
                    continue;
                }
                let kept = lane.times.contains_key(&offset) || is_quarantined(&ledger, offset) || dropped;
                if is_recorded(&offset) && !kept {
                    return Err(format!("offset {offset} is lost to sink {number}: its cursor is at {through:?}"));
                }
            }
            let in_hand: Vec<_> = lane.times.keys().filter(|offset| !is_recorded(offset)).copied().collect();
            // An event below the cursor may have been quarantined in the meantime. It is then no longer late, and is not
            // delivered again.
            let is_allowed = |repeats: &BTreeMap<Offset, usize>, offset: &Offset| {
                repeats.get(offset).is_some_and(|times| *times > 0)
            };
            let known = |offset: &&Offset| is_allowed(&lane.may_repeat, offset) || is_allowed(&lane.replaying, offset);
            let new = in_hand.iter().filter(|offset| !known(offset)).count();
            let bound = self.history.sinks[number].at_once.min(self.most_in_hand(through));
            if new > if in_order { 0 } else { bound } {
                return Err(format!("sink {number} has accepted {in_hand:?}, which is not recorded"));
            }
            let lane = &mut inner.lanes[number];
            lane.may_repeat = in_hand.into_iter().map(|offset| (offset, 1)).collect();
            lane.begin();
        }
        Ok(())
    }

    /// Returns the maximum number of events in one offer. This is the number of events in the joined pages. Below the first
    /// page of a channel, the events that a page leaves out are added.
    fn most_in_hand(&self, through: Option<Offset>) -> usize {
        let (_, page) = self.history.limits();
        let pages = MAX_JOINED * page;
        if through.is_none() { pages + page - 1 } else { pages }
    }

    /// Returns the numbers of the events that have to be read.
    fn readable(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.history.start.unwrap_or(0)..self.offsets.len()
    }

    fn cursor_is_right(&self, inner: &Inner, ledger: &Ledger, lane: usize) -> Result<(), String> {
        let found = through(ledger, lane);
        let last = |wanted: &[Placed]| {
            let last = self.readable().rfind(|at| wanted.contains(&self.is_placed(inner, *at)));
            last.map(|at| self.offsets[at]).or(self.start())
        };
        let (low, high) = (last(&[Placed::Yes]), last(&[Placed::Yes, Placed::Perhaps]));
        if low <= found && found <= high {
            return Ok(());
        }
        Err(format!("the cursor of sink {lane} is at {found:?}, not between {low:?} and {high:?}"))
    }

    /// Returns the position at which a lane begins.
    fn start(&self) -> Option<Offset> {
        self.history.start.and_then(|at| self.offsets.get(at)).and_then(|offset| offset.before())
    }

    fn is_placed(&self, inner: &Inner, at: usize) -> Placed {
        match self.history.events[at].kind {
            EventKind::Forged(Forgery::Confirmed) => Placed::Yes,
            EventKind::Forged(_) => Placed::No,
            EventKind::Duplicate(..) if matches!(self.history.original(at), Some((_, SameId::Yes))) => Placed::Perhaps,
            _ if inner.seen[at].denied => Placed::Perhaps,
            _ => Placed::Yes,
        }
    }

    /// Returns whether the event has less confidence than the sink with this number requires.
    pub(super) fn is_below_limit(&self, sink: usize, at: usize) -> bool {
        let Some(least) = self.history.sinks[sink].min_confidence else { return false };
        let form = self.history.form_delivered(&self.offsets, at);
        pool::limits_passed(self.offsets[at], form) <= least as usize
    }

    pub(super) fn fate(&self, inner: &Inner, at: usize) -> Fate {
        let (event, seen) = (self.history.events[at], &inner.seen[at]);
        match event.kind {
            EventKind::Forged(_) => Fate::Quarantined(pool::forged_reason(self.offsets[at])),
            // The event can be rejected before or after it times out, so the reason is not fixed.
            EventKind::LateForged(_) => Fate::Rejected,
            EventKind::Notice if self.history.drop_notices => Fate::Dropped,
            _ if event.damaged.is_some() && seen.denied => Fate::Either,
            EventKind::Never => Fate::Quarantined("proof-timeout"),
            EventKind::Duplicate(..) if self.history.original(at).is_some() => self.fate_of_duplicate(at),
            // The only request that was sent in time may have been answered without the proof.
            EventKind::Late(_) if event.damaged.is_some() => Fate::Either,
            EventKind::Late(after) => self.fate_of_late(after),
            EventKind::Proved if matches!(event.damaged, Some((_, Damage::Stripped))) => self.fate_of_late(0),
            _ => Fate::Delivered,
        }
    }

    /// A process knows the proofs that it has admitted itself, and the proofs that were recorded as delivered before it
    /// began.
    fn fate_of_duplicate(&self, at: usize) -> Fate {
        let knows = self.history.start.is_none_or(|start| self.original_is_read(at, start));
        if knows { Fate::Quarantined("duplicate-proof") } else { Fate::Either }
    }

    fn original_is_read(&self, at: usize, start: usize) -> bool {
        self.history.original(at).is_some_and(|(original, _)| original >= start)
    }

    fn fate_of_late(&self, after: u64) -> Fate {
        let in_time = after + ASKED_AGAIN <= self.history.proof_timeout;
        if in_time && self.history.faults.is_empty() { Fate::Delivered } else { Fate::Either }
    }
}

/// Checks that no proof is remembered twice. A replay that adds the proofs again would evict the newest proofs. Without
/// late events, no other delivery adds a proof again.
fn check_proofs(disk: &Disk) -> Result<(), String> {
    let (_, proofs) = Ledger::load(disk.entries(pool::channel()), usize::MAX).unwrap();
    let known: BTreeSet<_> = proofs.iter().map(|proof| proof.digest).collect();
    if known.len() < proofs.len() {
        return Err(format!("{} proofs are remembered, but only {} differ", proofs.len(), known.len()));
    }
    Ok(())
}
