//! The access of a lane to its stream: one implementation for NATS, and one for Kafka.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::{Position, Unrecorded};
use crate::narrowing::OtherContent;
use crate::{Recorded, SinkError};
use proof::event::EventKey;
use record::Message;

/// The events and the positions of one lane, as a server keeps them.
#[async_trait]
pub(crate) trait Log: Send + Sync {
    /// An event that is ready to be appended.
    type Event: Send;

    /// Logged if events are skipped because they are above a cursor that was moved back.
    const MOVED_BACK: &str;

    /// Logged if events are skipped because a crash or a failure happened after they were appended and before they were
    /// recorded.
    const HOLDS: &str;

    /// Takes the lane over. From then on the server refuses the requests of earlier owners, including requests that were
    /// sent before the claim. If no position is confirmed, the recorded cursor becomes the position.
    ///
    /// # Errors
    /// [`SinkError::Overtaken`] if this process had the lane under the same lease, and another instance has claimed it since.
    async fn claim(&mut self, recorded: &Recorded) -> Result<ClaimedPosition, SinkError>;

    /// Finds unrecorded events of the lane. If `everywhere` is true, the whole stream is searched. Otherwise only the part
    /// after the claimed position is searched. If this kind of server cannot have events there that the position does not
    /// cover, nothing is searched.
    async fn search(&mut self, everywhere: bool, unrecorded: &Unrecorded) -> Result<UnrecordedEvents, SinkError>;

    /// Checks whether events can be appended to this position. Called once before each delivery.
    async fn ready(&mut self, position: &Position) -> Result<(), SinkError>;

    /// Reads the settings of the stream again, because an operator may have changed them.
    async fn refresh(&mut self) -> Result<(), SinkError>;

    fn limits(&self) -> Limits;

    /// Prepares an event. Returns it with its size in bytes.
    ///
    /// # Errors
    /// If the stream is known not to accept the event.
    fn event(&self, message: &Message) -> Result<(Self::Event, usize), SinkError>;

    /// Whether the limits that the stream has stated allow a small event with the channel and the headers of this one.
    fn takes_small(&self, message: &Message) -> bool;

    /// Offers other events after an event that was refused alone for an unknown reason. None of them stays in the stream. By
    /// default, nothing is offered: the position that the lane has claimed is other content that the stream has accepted.
    async fn offer_others(&mut self, _others: Vec<Self::Event>, _position: &Position) -> OtherContent {
        OtherContent::Untried
    }

    /// Appends events, and the position that results from them, if the lane's claim is still valid.
    ///
    /// # Errors
    /// If the position was not appended, or if it is unknown whether it was appended.
    async fn append(&mut self, events: Vec<Self::Event>, position: &Position) -> Result<Appended, SinkError>;

    /// The error if the stream does not have the expected position.
    fn displaced(&self) -> SinkError;
}

pub(crate) enum ClaimedPosition {
    /// The stream has no position, although one is confirmed. The lane is not claimed.
    Missing(String),
    /// The lane is claimed, and has this position.
    At(Position),
}

/// Unrecorded events in a stream.
#[derive(Default)]
pub(crate) struct UnrecordedEvents {
    /// The events after the position that was claimed. They belong to the last delivery.
    pub(crate) last: BTreeSet<EventKey>,
    /// The other events.
    pub(crate) earlier: BTreeSet<EventKey>,
}

/// The limits of one append. An event that is larger than `bytes` is appended alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

pub(crate) enum Appended {
    All,
    /// The position was not appended. The stream already has these events. The caller appends the others again.
    Held(BTreeSet<EventKey>),
    /// The position was not appended, because an event is refused.
    Refused {
        /// The index of the refused event, if the index is known. All events before this event were then appended. If the
        /// index is unknown, no event was appended.
        at: Option<usize>,
        error: SinkError,
    },
}
