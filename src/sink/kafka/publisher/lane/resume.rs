//! Resuming a lane: compares its position with the recorded cursor.

use std::collections::BTreeSet;

use tracing::{info, warn};

use super::{Lane, Shared};
use crate::kafka::publisher::failure::Failure;
use crate::kafka::publisher::positions::{Position, Positions, body};
use crate::kafka::publisher::search::{Search, ends};
use crate::stream::{self, Unrecorded};
use crate::{Position as Place, Recorded};
use proof::event::EventKey;

/// The result of the first step of resuming a lane.
pub(in crate::kafka::publisher) enum Begun {
    /// The lane has no position, although the state has a confirmed one.
    Missing(String),
    /// The lane is claimed. If a search is given, it must run to find further events in the topic.
    Claimed(Option<Search>),
}

impl Lane {
    /// Reads the position without claiming the lane.
    pub(in crate::kafka::publisher) fn position(&self, shared: &Shared) -> Result<Place, Failure> {
        if shared.seen.facts(&shared.brokers, false)?.is_none() {
            return Ok(Place::Missing(missing_topic(shared)));
        }
        let position = self.read(shared, Positions::read_to_end)?.position;
        match self.readable(position, shared)? {
            None => Ok(Place::Missing(self.missing(shared))),
            Some(position) => Ok(Place::At(position.lane.through)),
        }
    }

    /// Claims the lane and reads its position.
    pub(in crate::kafka::publisher) fn take_over(
        &mut self,
        shared: &Shared,
        recorded: &Recorded,
    ) -> Result<Begun, Failure> {
        self.claim = None;
        let begun = self.try_to_take_over(shared, recorded);
        match &begun {
            Ok(Begun::Missing(_)) => (self.claim, self.was_missing) = (None, true),
            Ok(Begun::Claimed(_)) => (self.lost, self.was_missing) = (None, false),
            Err(Failure::Overtaken(_)) => self.ours = None,
            Err(Failure::Operator(_)) => shared.seen.forget(),
            Err(_) => {}
        }
        begun
    }

    fn try_to_take_over(&mut self, shared: &Shared, recorded: &Recorded) -> Result<Begun, Failure> {
        let brokers = &shared.brokers;
        let may_make = recorded.confirmed.is_none();
        let Some(topic) = shared.seen.facts(brokers, may_make).inspect_err(|_| brokers.doubt())? else {
            return Ok(Begun::Missing(missing_topic(shared)));
        };
        let partitions = topic.partitions;
        let known = self.take(shared, recorded.epoch, topic)?;
        let Some(position) = self.adopted(shared, known, recorded)? else {
            return Ok(Begun::Missing(self.missing(shared)));
        };
        self.position = position;
        if recorded.confirmed.is_some() {
            let lost = self.lost.clone().map_or_else(|| self.cut(shared, partitions), |why| Ok(Some(why)))?;
            if let Some(why) = lost {
                return Ok(Begun::Missing(why));
            }
        }
        // The position no longer names events of earlier deliveries, so only a search finds them.
        let unrecorded = Unrecorded::new(recorded, self.position.lane.through);
        let is_needed = self.position.lane.prior > recorded.through
            || self.was_missing
            || !unrecorded.doubted(&self.position.lane, recorded).is_empty();
        let search = is_needed.then(|| Search::begin(brokers, partitions, &self.identity, unrecorded));
        search.transpose().map(Begun::Claimed)
    }

    /// The position at which the lane continues. If no position is confirmed, the recorded cursor is written as the position.
    fn adopted(
        &self,
        shared: &Shared,
        known: Option<Position>,
        recorded: &Recorded,
    ) -> Result<Option<Position>, Failure> {
        if recorded.confirmed.is_some() {
            return Ok(known);
        }
        let was_there = known.is_some();
        let mut position =
            known.unwrap_or_else(|| Position { lane: stream::Position::first(&self.identity, None), ends: Vec::new() });
        if was_there && position.ends.is_empty() && position.lane.through == recorded.through {
            return Ok(Some(position));
        }
        position.lane.through = recorded.through;
        position.lane.epoch = recorded.epoch;
        // The topic may be a different one now.
        position.ends = Vec::new();
        if let Some(claim) = &self.claim {
            let (record, brokers) = (body(&position), &shared.brokers);
            let record = shared.position_record(&self.id, &record);
            claim.producer.transact(brokers, &[record], |_| Ok(())).map_err(|broken| broken.failure)?;
        }
        Ok(Some(position))
    }

    /// Checks whether the topic of events ends before records of this lane. If so, it was deleted and created again, or
    /// truncated, and the reason is returned.
    fn cut(&self, shared: &Shared, partitions: usize) -> Result<Option<String>, Failure> {
        let topic = &shared.brokers.settings.topic;
        let has_delivered = !self.position.lane.delivery.is_nil();
        if !has_delivered {
            return Ok(None);
        }
        let ends = ends(&shared.brokers, (0..).take(partitions))?;
        let lost =
            self.position.ends.iter().find(|(partition, last)| ends.get(partition).is_none_or(|end| end <= last));
        if let Some((partition, last)) = lost {
            return Ok(Some(format!(
                "the topic {topic} ends before the record {last} of its partition {partition}, which this lane had produced"
            )));
        }
        let is_empty = ends.values().all(|end| *end == 0);
        Ok(is_empty.then(|| format!("the topic {topic} has never had a record, although this lane had produced some")))
    }

    /// Returns the events that are in the topic, but that the state does not record as delivered. `found` contains the
    /// events that the search has found.
    pub(in crate::kafka::publisher) fn taken_over(
        &mut self,
        recorded: &Recorded,
        found: &BTreeSet<EventKey>,
    ) -> BTreeSet<EventKey> {
        let (channel, sink) = (&self.identity.channel.name, &self.identity.sink);
        let unrecorded = Unrecorded::new(recorded, self.position.lane.through);
        let doubted = unrecorded.doubted(&self.position.lane, recorded);
        let last = found.iter().filter(|key| doubted.contains(&key.offset)).copied().collect();
        let (position, there) = unrecorded.compare(&self.position.lane, &doubted, &last, found);
        if !found.is_empty() {
            warn!(%channel, %sink, events = found.len(),
                "the cursor was moved back: events that are in the topic are not produced again");
        } else if !there.is_empty() {
            info!(%channel, %sink, events = there.len(), "topic already holds events that are not recorded as delivered");
        }
        self.position.lane = position;
        self.held = unrecorded.offered(&there);
        there
    }
}

fn missing_topic(shared: &Shared) -> String {
    let settings = &shared.brokers.settings;
    format!("one of the topics {} and {} does not exist", settings.topic, settings.positions_topic)
}
