//! The events and positions of one lane in the topics. The work runs on threads that may block.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tracing::info;

use super::producer::Outgoing;
use super::writer::{Capacity, Shared, Writer};
use crate::narrowing::OtherContent;
use crate::stream::{Appended, ClaimedPosition, Limits, Log, Position, SMALL_BODY, Unrecorded, UnrecordedEvents};
use crate::{LaneRef, Position as LanePosition, Recorded, SinkError, blocking};
use net::tasks::lock;
use record::Message;

pub(super) struct LaneLog {
    shared: Arc<Shared>,
    identity: LaneRef,
    /// Locked while work runs, even if the work is no longer awaited.
    writer: Arc<Mutex<Writer>>,
    /// The writer's capacity after its last work.
    capacity: Capacity,
}

impl LaneLog {
    pub(super) fn new(shared: Arc<Shared>, identity: LaneRef) -> Self {
        let writer = Writer::new(shared.clone(), identity.clone());
        let capacity = writer.capacity();
        Self { shared, identity, writer: Arc::new(Mutex::new(writer)), capacity }
    }

    /// Passes the writer to `work`, unless earlier work that is no longer awaited still uses the writer. May block.
    pub(super) fn unused(&self, work: impl FnOnce(&mut Writer)) {
        if let Ok(mut writer) = self.writer.try_lock() {
            work(&mut writer);
        }
    }

    pub(super) async fn position(&mut self) -> Result<LanePosition, SinkError> {
        self.on(|writer| writer.position()).await
    }

    /// Runs `work` on a thread that may block.
    async fn on<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Writer) -> T + Send + 'static) -> T {
        let permit = self.shared.threads.clone().acquire_owned().await.expect("it is never closed");
        let writer = self.writer.clone();
        let (done, capacity) = blocking(move || {
            let mut writer = lock(&writer);
            let done = work(&mut writer);
            drop(permit);
            (done, writer.capacity())
        })
        .await;
        self.capacity = capacity;
        done
    }
}

#[async_trait]
impl Log for LaneLog {
    type Event = Outgoing;

    const MOVED_BACK: &str = "the cursor was moved back: events that are in the topic are not produced again";
    const HOLDS: &str = "topic already holds events that are not recorded as delivered";

    async fn claim(&mut self, recorded: &Recorded) -> Result<ClaimedPosition, SinkError> {
        let recorded = recorded.clone();
        self.on(move |writer| writer.take_over(&recorded)).await
    }

    /// The claim has ended every earlier transaction of the lane. Therefore the topic can contain events that the position
    /// does not cover only if a position was deleted or restored. The position then says so.
    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<UnrecordedEvents, SinkError> {
        if !everywhere {
            return Ok(UnrecordedEvents::default());
        }
        let unrecorded = unrecorded.clone();
        let mut search = self.on(move |writer| writer.search(unrecorded)).await?;
        info!(channel = %self.identity.channel.name, sink = %self.identity.sink, topic = self.shared.topic(),
            "searching the lane's events in the topic");
        let earlier = loop {
            let shared = self.shared.clone();
            match blocking(move || search.go_on(&shared.brokers)).await? {
                ControlFlow::Continue(further) => search = further,
                ControlFlow::Break(found) => break found,
            }
        };
        Ok(UnrecordedEvents { earlier, ..UnrecordedEvents::default() })
    }

    async fn ready(&mut self, position: &Position) -> Result<(), SinkError> {
        let expected = (position.delivery, position.through);
        self.on(move |writer| writer.ready(expected)).await
    }

    async fn refresh(&mut self) -> Result<(), SinkError> {
        self.on(Writer::refresh).await
    }

    fn limits(&self) -> Limits {
        Limits { events: usize::MAX, bytes: self.capacity.bytes }
    }

    fn event(&self, message: &Message) -> Result<(Outgoing, usize), SinkError> {
        let event = Outgoing::event(&self.identity, message);
        let size = event.size();
        match self.capacity.largest {
            Some(largest) if size > largest => Err(event.too_large(self.shared.topic(), Some(largest), None)),
            _ => Ok((event, size)),
        }
    }

    fn takes_small(&self, message: &Message) -> bool {
        let event = Outgoing::event(&self.identity, message);
        let size = event.size() - event.body.len() + SMALL_BODY;
        self.capacity.largest.is_none_or(|largest| size <= largest)
    }

    async fn offer_others(&mut self, others: Vec<Outgoing>, position: &Position) -> OtherContent {
        let position = position.clone();
        self.on(move |writer| writer.offer_others(&others, position)).await
    }

    async fn append(&mut self, events: Vec<Outgoing>, position: &Position) -> Result<Appended, SinkError> {
        let position = position.clone();
        self.on(move |writer| writer.append(&events, position)).await
    }

    fn displaced(&self) -> SinkError {
        self.shared.displaced(&self.identity)
    }
}
