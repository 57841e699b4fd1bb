//! The events and positions of one lane in the topics. The work runs on threads that may block.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tracing::info;

use super::event::Event;
use super::shared::Shared;
use super::writer::{Capacity, Writer, Writers};
use crate::stream::{Appended, Claim, Found, Limits, Log, Position, Unrecorded};
use crate::{LaneRef, Position as Place, Recorded, SinkError, blocking};
use net::tasks::lock;
use record::Message;

/// One lane's part of the topics.
pub(super) struct LaneLog {
    shared: Arc<Shared>,
    identity: LaneRef,
    /// Locked while work runs, even if the work is no longer awaited.
    writer: Arc<Mutex<Writer>>,
    /// The writer's capacity after its last work.
    capacity: Capacity,
}

impl LaneLog {
    pub(super) fn new(shared: Arc<Shared>, identity: LaneRef, writers: &Writers) -> Self {
        let writer = writers.writer(identity.clone(), &shared);
        Self { shared, identity, writer, capacity: Capacity::default() }
    }

    /// Runs `work` on a thread that may block.
    async fn on<T: Send + 'static>(&mut self, work: impl FnOnce(&mut Writer, &Shared) -> T + Send + 'static) -> T {
        let (shared, writer, permit) = (self.shared.clone(), self.writer.clone(), self.shared.thread().await);
        let (done, capacity) = blocking(move || {
            let mut writer = lock(&writer);
            let done = work(&mut writer, &shared);
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
    type Event = Event;

    const MOVED_BACK: &str = "the cursor was moved back: events that are in the topic are not produced again";
    const HOLDS: &str = "topic already holds events that are not recorded as delivered";

    async fn position(&mut self) -> Result<Place, SinkError> {
        self.on(|writer, shared| writer.position(shared)).await
    }

    async fn claim(&mut self, recorded: &Recorded) -> Result<Claim, SinkError> {
        let recorded = recorded.clone();
        self.on(move |writer, shared| writer.take_over(shared, &recorded)).await
    }

    /// The claim has ended every transaction. So events that the position does not cover are in the topic only if positions
    /// are missing.
    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<Found, SinkError> {
        let unrecorded = unrecorded.clone();
        let search = self.on(move |writer, shared| writer.search(shared, everywhere, unrecorded)).await?;
        let Some(mut search) = search else { return Ok(Found::default()) };
        info!(channel = %self.identity.channel.name, sink = %self.identity.sink, topic = self.shared.topic(),
            "searching the lane's events in the topic");
        loop {
            let shared = self.shared.clone();
            let (back, found) = blocking(move || {
                let found = search.go_on(&shared.brokers);
                (search, found)
            })
            .await;
            search = back;
            if let Ok(None) = found {
                continue;
            }
            // Dropping a client waits for the client's threads, so it must not happen on an async thread.
            blocking(move || drop(search)).await;
            let earlier = found?.unwrap_or_default();
            self.on(|writer, _| writer.has_searched()).await;
            return Ok(Found { earlier, ..Found::default() });
        }
    }

    async fn ready(&mut self, position: &Position) -> Result<(), SinkError> {
        let expected = (position.delivery, position.through);
        self.on(move |writer, shared| writer.ready(shared, expected)).await
    }

    async fn refresh(&mut self) -> Result<(), SinkError> {
        self.on(Writer::refresh).await
    }

    fn limits(&self) -> Limits {
        Limits { events: usize::MAX, bytes: self.capacity.bytes }
    }

    fn event(&self, message: &Message) -> Result<(Event, usize), SinkError> {
        let event = Event::of(&self.identity, message);
        let size = event.size();
        match self.capacity.largest {
            Some(largest) if size > largest => Err(event.too_large(self.shared.topic(), Some(largest), None)),
            _ => Ok((event, size)),
        }
    }

    /// In one transaction.
    async fn append(&mut self, events: Vec<Event>, position: &Position) -> Result<Appended, SinkError> {
        let position = position.clone();
        self.on(move |writer, shared| writer.append(shared, &events, position)).await
    }

    fn displaced(&self) -> SinkError {
        self.shared.displaced(&self.identity)
    }
}
