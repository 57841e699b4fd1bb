//! The event that `channeld test-sink` delivers.
//!
//! # Invariants
//!
//! * **It cannot be mistaken for a real event.** Its type is `channeld.test`, its channel id belongs to no channel, and it
//!   is marked as unsigned.

use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::line::{UNSIGNED, Verification};
use super::{ChannelRef, Lines, Record};
use proof::event::{ChannelId, Event};

/// The event's type.
const TEST_TYPE: &str = "channeld.test";

/// The name of the event's channel.
const TEST_CHANNEL: &str = "channeld-test";

impl Record {
    /// Makes a notice whose text says that it is a test of the sink `sink`. `id` is its event id and `at` its time.
    ///
    /// # Panics
    /// Never: the event is well-formed.
    pub fn of_test(sink: &str, id: Uuid, at: Timestamp) -> Self {
        let reason = format!("a test of the sink {sink}: nothing has happened");
        let event = json!({
            "event_id": id,
            "headers": {"type": TEST_TYPE, "offset": 0, "proofs": []},
            "payload": {"test": true, "status": "test", "status_reason": reason, "timestamp": at.as_second()},
        });
        let event = Event::parse(event.to_string().into()).expect("it has what every event has");
        let channel = ChannelRef { name: TEST_CHANNEL.into(), id: ChannelId(Uuid::nil()) };
        Self::new(&channel, &event, &Verification::status(UNSIGNED), &mut Lines::default().received(at))
    }
}
