//! Finds the first event of a channel that was created at or after a time.
//!
//! # Invariants
//!
//! * **No event since the time is skipped.** The first event is the event with the lowest offset among all events that were
//!   created at or after the time. Events that were created up to [`SKEW`](api::windows::SKEW) seconds before the time can follow
//!   it.
//! * **Confirmed, or not named.** The service must show the event under its id too. If no such event exists yet, the service's
//!   newest event must have been created before the time, according to both poll and search. Otherwise the answer is only an
//!   offset below which no such event exists.
//! * **Bounded.** Only candidates for the first event are kept.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::read::reader::{FIRST_SPAN, after, first_since};
use crate::read::source::Source;
use api::windows::{Direction, END_OF_TIME, InDoubt, Windows};
use api::{ApiError, MAX_PAGE};
use net::time::Time;
use proof::event::{Event, EventKey, Offset, RawEvent};

/// A position in a channel as an operator writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetOrTime {
    /// A plain number.
    Offset(Offset),
    /// Any other text.
    Time(Time),
}

impl FromStr for OffsetOrTime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.parse::<i128>().is_ok() {
            return text.parse().map(Self::Offset);
        }
        text.parse().map(Self::Time).map_err(|_| {
            "must be an offset (a whole number, 0 or larger) or a time: 2026-05-14T12:00:00Z, 2026-05-14, @1778760000 (Unix \
             seconds) or 7d (that long ago)"
        })
    }
}

/// Returns the first Unix second at or after a time. Every event was created after 1970.
fn unix_second(time: Time, now: Timestamp) -> i64 {
    let time = time.at(now).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH);
    time.as_second() + i64::from(time.subsec_nanosecond() > 0)
}

/// The first event that was created at or after a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstEvent {
    /// This event.
    Found {
        /// The event's offset and id.
        key: EventKey,
        /// The time in the event, if the event has one. It can differ a little from the time of its creation.
        time: Option<Timestamp>,
    },
    /// At this offset or above. The event itself cannot be identified: too many events were created in the same second, or the
    /// order of times differs too much from the order of offsets, or answers of the service contradict each other. Earlier events
    /// can be at this offset or above too, usually events of the last [`SKEW`](api::windows::SKEW) seconds before the time.
    AtLeast(Offset),
    /// No event was created at or after the time yet.
    NotYet {
        /// The newest event of the channel.
        newest: Option<Offset>,
    },
}

impl FirstEvent {
    /// Finds the first event that was created at or after `time`, with `now` as the current time.
    ///
    /// # Errors
    /// If the service does not answer.
    pub async fn since(source: &dyn Source, time: Time, now: Timestamp) -> Result<Self, ApiError> {
        // `time` may be after `now`, because the clock of this machine can be wrong.
        let second = unix_second(time, now);
        // The newest event is requested before the search. If an event becomes visible between the two requests, the search finds
        // it.
        let newest = source.poll(None, 1).await?.events.first().map(|event| event.offset);
        let found = match search(source, second).await? {
            Ok(None) => return not_yet(source, second, newest).await,
            found => found.ok().flatten(),
        };
        if let Some(event) = found
            && is_confirmed(source, &event).await?
        {
            let (key, parsed) = (event.event_key(), Event::parse(event.json).ok());
            let time = parsed.and_then(|event| Timestamp::from_second(event.payload.timestamp?).ok());
            return Ok(Self::Found { key, time });
        }
        Ok(Self::AtLeast(first_since(source, second).await?))
    }

    /// Returns the offset at which the events since the time begin, or `None` if no such event exists yet.
    pub fn offset(&self) -> Option<Offset> {
        match self {
            Self::Found { key: EventKey { offset, .. }, .. } | Self::AtLeast(offset) => Some(*offset),
            Self::NotYet { .. } => None,
        }
    }

    /// Returns the last offset before the first event. If no such event exists yet, this is the newest offset.
    pub fn before(&self) -> Option<Offset> {
        if let Self::NotYet { newest } = self { *newest } else { self.offset()?.before() }
    }
}

impl fmt::Display for FirstEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { key: EventKey { offset, id }, time } => {
                write!(f, "offset {offset}")?;
                id.map_or(Ok(()), |id| write!(f, ", event {id}"))?;
                time.map_or(Ok(()), |time| write!(f, ", time {time}"))
            }
            Self::AtLeast(offset) => {
                write!(f, "offset {offset} or above: the service's answers do not show exactly which event it is")
            }
            Self::NotYet { newest: Some(newest) } => write!(f, "none yet: the newest event is at offset {newest}"),
            Self::NotYet { newest: None } => f.write_str("none yet: the channel has no events"),
        }
    }
}

/// Returns the offset of the last event that was created at or before a time.
///
/// # Errors
/// If the service does not answer.
pub async fn last_until(source: &dyn Source, time: Time, now: Timestamp) -> Result<Option<Offset>, ApiError> {
    let second = time.at(now).map_or(0, Timestamp::as_second);
    Ok(source.created(None, second, 1).await?.events.first().map(|event| event.offset))
}

/// Searches for the event with the lowest offset among the events that were created at or after `second`.
async fn search(source: &dyn Source, second: i64) -> Result<Result<Option<RawEvent>, InDoubt>, ApiError> {
    let mut windows = Windows::new(Direction::Up, second - 1, END_OF_TIME, MAX_PAGE, FIRST_SPAN);
    let mut lowest: Option<Offset> = None;
    loop {
        if let Some(first) = windows.take(1).pop() {
            return Ok(Ok(Some(first)));
        }
        let Some(window) = windows.next() else { return Ok(Ok(None)) };
        let page = match source.created(Some(window.after), window.through, windows.limit()).await {
            Err(ApiError::TooLong { .. }) => match windows.too_long(window) {
                Ok(()) => continue,
                Err(doubt) => return Ok(Err(doubt)),
            },
            page => page?,
        };
        let lowest_shown = page.events.last().map(|event| event.offset);
        let is_lower = move |offset| lowest.is_none_or(|lowest| offset < lowest);
        match windows.read(window, page, is_lower) {
            Ok(true) => lowest = [lowest, lowest_shown].into_iter().flatten().min(),
            Ok(false) => {}
            Err(doubt) => return Ok(Err(doubt)),
        }
    }
}

/// Returns whether the service shows an event under its id at the same offset. An event without an id cannot be requested alone:
/// the search result is enough.
async fn is_confirmed(source: &dyn Source, event: &RawEvent) -> Result<bool, ApiError> {
    let Some(id) = event.id else { return Ok(true) };
    match source.event(id).await {
        Ok(same) => Ok(same.offset == event.offset),
        Err(ApiError::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Confirms that the newest event was created before `second`. Search can show an event later than poll does. If search does not
/// show the newest events yet, they count as events since the time.
async fn not_yet(source: &dyn Source, second: i64, newest: Option<Offset>) -> Result<FirstEvent, ApiError> {
    let before = source.created(None, second - 1, 1).await?.events.first().map(|event| event.offset);
    Ok(if before < newest { FirstEvent::AtLeast(after(before)) } else { FirstEvent::NotYet { newest: before } })
}

#[cfg(test)]
mod tests;
