//! Positions that are given as a time: finds their offsets at the service, and prints the first event.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::context::CommandError;
use channel::{FirstEvent, last_until, unobserved};
use net::time::Time;
use proof::event::{ChannelId, Offset};

const SEARCHING: &str = "the first event since this time could not be found";

/// The service and the channel whose events are searched.
pub(super) struct Search {
    pub(super) client: api::Client,
    pub(super) channel: ChannelId,
}

impl Search {
    /// Finds the first event that was created at `time` or later.
    pub(super) async fn first_since(&self, time: Time) -> Result<FirstEvent, CommandError> {
        let (source, now) = (unobserved(self.client.clone(), self.channel), Timestamp::now());
        if time.at(now) > Some(now) {
            return Err(CommandError::usage(format!("the time {time} is in the future")));
        }
        let first = FirstEvent::since(&*source, time, now).await;
        first.map_err(CommandError::api(SEARCHING))
    }

    /// Finds the last event that was created at `time` or earlier.
    pub(super) async fn last_until(&self, time: Time) -> Result<Option<Offset>, CommandError> {
        let source = unobserved(self.client.clone(), self.channel);
        let last = last_until(&*source, time, Timestamp::now()).await;
        last.map_err(CommandError::api("the last event until this time could not be found"))
    }
}

/// Prints the first event.
pub(super) fn line(time: Time, first: &FirstEvent) -> String {
    format!("first event since {time}: {first}")
}

/// The first event, as JSON for programs: `null` if no event was created since the time.
pub(super) fn json_of(first: &FirstEvent) -> Value {
    match first {
        FirstEvent::Found { key, time } => json!({ "offset": key.offset, "event_id": key.id, "time": time }),
        FirstEvent::AtLeast(offset) => json!({ "at_least": offset }),
        FirstEvent::NotYet { .. } => Value::Null,
    }
}
