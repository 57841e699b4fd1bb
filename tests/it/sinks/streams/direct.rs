//! A lane without a daemon. It calls the sink as a real lane does, but the test decides which deliveries are recorded.

use std::collections::BTreeSet;
use std::sync::Arc;

use proof::event::{ChannelId, EventId, EventKey, Offset, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier};
use record::{ChannelRef, Lines, Message, Record, Shape};
use sink::{Confirmed, Delivery, LaneRef, Position, Recorded, Resumed, Sink, SinkError, Undelivered};
use uuid::Uuid;

/// A lane and its recorded state.
#[derive(Clone)]
pub(crate) struct DirectLane {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) lane: LaneRef,
    pub(crate) epoch: u64,
    /// The recorded cursor.
    pub(crate) through: Option<Offset>,
    /// The last position that the sink confirmed.
    pub(crate) confirmed: Option<Confirmed>,
    pub(crate) pending: BTreeSet<EventKey>,
}

pub(crate) fn offset(number: i64) -> Offset {
    Offset::new(number).unwrap()
}

/// The event at this offset with this id.
pub(crate) fn key(at: i64, id: u128) -> EventKey {
    EventKey { offset: offset(at), id: Some(EventId(Uuid::from_u128(id))) }
}

/// Events at these offsets. Each has a different id.
pub(crate) fn keys(offsets: impl IntoIterator<Item = i64>) -> Vec<EventKey> {
    offsets.into_iter().map(|at| key(at, u128::from(at.unsigned_abs()))).collect()
}

pub(crate) fn at(position: i64) -> Position {
    Position::At(Some(offset(position)))
}

impl DirectLane {
    /// A lane of a new channel, with nothing recorded.
    pub(crate) fn new(sink: Arc<dyn Sink>, name: &str) -> Self {
        let channel = ChannelRef { name: "c0".into(), id: ChannelId(Uuid::new_v4()) };
        let lane = LaneRef { channel, sink: name.into() };
        Self { sink, lane, epoch: 1, through: None, confirmed: None, pending: BTreeSet::new() }
    }

    /// The same lane after a restart of the process.
    pub(crate) fn restarted(&self, sink: Arc<dyn Sink>) -> Self {
        Self { sink, ..self.clone() }
    }

    /// Sets the cursor, as an operator does.
    pub(crate) fn put(&mut self, cursor: Option<i64>) {
        (self.through, self.confirmed) = (cursor.map(offset), None);
    }

    pub(crate) async fn resume(&mut self) -> Result<Resumed, SinkError> {
        let Self { lane, epoch, through, confirmed, pending, .. } = self.clone();
        let (replayed, late) = (BTreeSet::new(), Vec::new());
        let recorded = Recorded { lane, epoch, through, pending, replayed, confirmed, late };
        let resumed = self.sink.resume(&recorded).await?;
        if let Position::At(position) = resumed.position {
            self.confirmed = Some(Confirmed { position, last: confirmed.and_then(|confirmed| confirmed.last) });
        }
        Ok(resumed)
    }

    /// Delivers these events and records the delivery.
    pub(crate) async fn deliver(&mut self, events: &[EventKey]) -> Result<(), Undelivered> {
        let through = self.deliver_unrecorded(events).await?;
        let last = events.last().copied();
        self.through = self.through.max(Some(through));
        self.confirmed = Some(Confirmed { position: self.after().max(Some(through)), last });
        Ok(())
    }

    /// Delivers these events without recording the delivery, as if the process crashed in between.
    pub(crate) async fn deliver_unrecorded(&self, events: &[EventKey]) -> Result<Offset, Undelivered> {
        let messages: Vec<_> = events.iter().map(|event| message(&self.lane.channel, *event)).collect();
        let through = events.last().unwrap().offset.max(self.through.unwrap_or(Offset::ZERO));
        let (lane, epoch, after) = (&self.lane, self.epoch, self.after());
        self.sink.deliver(&Delivery { lane, epoch, after, through, messages: &messages }).await?;
        Ok(through)
    }

    fn after(&self) -> Option<Offset> {
        self.confirmed.and_then(|confirmed| confirmed.position)
    }
}

/// A notice in the form in which a sink receives it.
fn message(channel: &ChannelRef, EventKey { offset, id }: EventKey) -> Message {
    let id = id.map(|id| format!(r#""event_id":"{id}","#)).unwrap_or_default();
    let json = format!(r#"{{{id}"headers":{{"type":"wallet.status","offset":{offset},"proofs":[]}},"payload":{{}}}}"#);
    let signers = SignerSet::new(vec![Address([1; 20])], 1).unwrap();
    match Verifier::new(signers, Address([2; 20])).verify(RawEvent::locate(json.into()).unwrap()) {
        Verdict::Unsigned(notice) => {
            Message::new(&Arc::new(Record::unsigned(channel, &notice, &mut Lines::default())), &Shape::default())
        }
        other => panic!("a notice is {}", other.name()),
    }
}
