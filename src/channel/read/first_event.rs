//! Finds the first event of a channel that was created at or after a time.
//!
//! # Invariants
//!
//! * **No event from the time on is left out.** The first event is the event with the lowest offset among all events that were
//!   created at or after the time. Events that were created up to [`SKEW`] seconds before the time can follow it.
//! * **Confirmed.** The service must show the event under its id too. If no such event exists yet, the service's newest event
//!   must have been created before the time, according to both poll and search.
//! * **Bounded.** Only candidates for the first event are kept.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::error::ReadError;
use crate::read::reader::{FIRST_SPAN, first_since};
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
    /// A time before now.
    Time(Time),
}

impl FromStr for OffsetOrTime {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.parse::<i128>().is_ok() {
            return text.parse().map(Self::Offset);
        }
        let time: Time = text.parse().map_err(|_| {
            "must be an offset (a whole number, 0 or larger) or a time: 2026-05-14T12:00:00Z, 2026-05-14, @1778760000 (Unix \
             seconds) or 7d (that long ago)"
        })?;
        match unix_second(time, Timestamp::now()) {
            Some(_) => Ok(Self::Time(time)),
            None => Err("must not be a time in the future or before 1970"),
        }
    }
}

/// Returns the first Unix second at or after a time. Returns `None` for a time in the future or before 1970.
fn unix_second(time: Time, now: Timestamp) -> Option<i64> {
    let time = time.at(now)?;
    let second = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    (second >= 0 && time <= now).then_some(second)
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
    /// At this offset or above. The event itself cannot be identified, because too many events were created in the same second,
    /// or because the order of times differs too much from the order of offsets. Events that were created up to
    /// [`SKEW`](api::windows::SKEW) seconds before the time can be at this offset or above too.
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
    /// [`ReadError`] if the service does not answer, or if its answers contradict each other. The caller must repeat the call
    /// later.
    pub async fn since(source: &dyn Source, time: Time, now: Timestamp) -> Result<Self, ReadError> {
        // After the clock was set back, `time` can be in the future. The search then begins now, so no event is left out.
        let second = unix_second(time, now).unwrap_or_else(|| now.as_second().max(0));
        // The newest event is requested first, so that the search finds an event that becomes visible meanwhile.
        let newest = source.poll(None, 1).await?.events.first().map(|event| event.offset);
        match search(source, second).await? {
            Ok(Some(event)) => confirmed(source, &event).await,
            Ok(None) => not_yet(source, second, newest).await,
            Err(_) => Ok(Self::AtLeast(first_since(source, second).await?)),
        }
    }

    /// Returns the offset at which the events since the time begin, or `None` if there is no such event yet.
    pub fn offset(&self) -> Option<Offset> {
        match self {
            Self::Found { key, .. } => Some(key.offset),
            Self::AtLeast(offset) => Some(*offset),
            Self::NotYet { .. } => None,
        }
    }

    /// Returns the last offset before the first event. If no such event exists yet, this is the newest offset.
    pub fn before(&self) -> Option<Offset> {
        match self {
            Self::Found { key: EventKey { offset, .. }, .. } | Self::AtLeast(offset) => offset.before(),
            Self::NotYet { newest } => *newest,
        }
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
                write!(f, "offset {offset} or above: the service shows too many events of that time to find it exactly")
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
    let second = time.at(now).unwrap_or(now).as_second();
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
        let page = match source.created(Some(window.after), window.through, MAX_PAGE).await {
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

/// Confirms that the service shows an event under its id at the same offset. An event without an id cannot be requested alone:
/// search has shown it.
async fn confirmed(source: &dyn Source, event: &RawEvent) -> Result<FirstEvent, ReadError> {
    let in_doubt = || ReadError::InDoubt { above: None, below: event.offset };
    if let Some(id) = event.id {
        match source.event(id).await {
            Ok(same) if same.offset == event.offset => {}
            Ok(_) | Err(ApiError::NotFound(_)) => return Err(in_doubt()),
            Err(error) => return Err(error.into()),
        }
    }
    let seconds = Event::parse(event.json.clone()).ok().and_then(|event| event.payload.timestamp);
    let time = seconds.and_then(|second| Timestamp::from_second(second).ok());
    Ok(FirstEvent::Found { key: event.event_key(), time })
}

/// Confirms that the newest event was created before `second`. Search may show an event later than poll.
async fn not_yet(source: &dyn Source, second: i64, newest: Option<Offset>) -> Result<FirstEvent, ReadError> {
    let found = source.created(None, second - 1, 1).await?.events.first().map(|event| event.offset);
    match newest {
        Some(below) if found < newest => Err(ReadError::InDoubt { above: found, below }),
        _ => Ok(FirstEvent::NotYet { newest: newest.max(found) }),
    }
}

#[cfg(test)]
mod tests;
