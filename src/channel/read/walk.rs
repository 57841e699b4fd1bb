//! Reads a range upward that polling does not show, because the service's pages contain only the newest events.
//!
//! The range is read in windows of `created`: see [`windows`](api::windows).
//!
//! # Invariants
//!
//! * **From below the range.** The walk begins at a second up to which the service shows no event above the last offset
//!   read.
//! * **Events from before and after an error are not joined.** The service may have been restored meanwhile.
//! * **In doubt until the service shows otherwise.** A window that is in doubt is requested again by the next call.
//!
//! # Cancellation
//!
//! Safe at any point: events that were not returned are not lost.

use crate::read::error::ReadError;
use crate::read::source::Source;
use api::ApiError;
use api::windows::{BEFORE_TIME, Direction, END_OF_TIME, Windows};
use proof::event::{Offset, RawEvent};

/// The maximum number of events in one search answer.
const SEARCH_LIMIT: u16 = 200;

/// The length of the first window, in seconds.
const FIRST_SPAN: i64 = 64;

/// A walk up to and including the lowest event that polling has shown.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Events up to this offset are not part of the range.
    above: Option<Offset>,
    /// The last offset of the range.
    top: Offset,
    windows: Windows,
}

impl Walk {
    /// Finds the second at which the walk begins.
    pub(crate) async fn begin(source: &dyn Source, above: Option<Offset>, top: Offset) -> Result<Self, ReadError> {
        // The whole range was created after `low`, and at least one of its events was created at or before `high`.
        let (mut low, mut high) = (BEFORE_TIME, END_OF_TIME);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let newest = source.created(None, middle, 1).await?.events.first().map(|event| event.offset);
            if newest > above { high = middle } else { low = middle }
        }
        Ok(Self { above, top, windows: Windows::new(Direction::Up, low, END_OF_TIME, SEARCH_LIMIT, FIRST_SPAN) })
    }

    /// Returns the next events of the range in ascending order, between one and `limit`, or `None` at its end.
    ///
    /// # Errors
    /// [`ReadError`] if the request must be repeated. The walk must restart if the events of one second exceed the memory.
    pub(crate) async fn next(&mut self, source: &dyn Source, limit: u16) -> Result<Option<Vec<RawEvent>>, ReadError> {
        loop {
            let ready = self.windows.take(limit);
            if !ready.is_empty() {
                return Ok(Some(ready));
            }
            if self.windows.settled() >= Some(self.top) {
                return Ok(None);
            }
            // All time was searched, but search lacks an event that polling has shown.
            let Some(window) = self.windows.next() else { return Err(self.in_doubt()) };
            let page = match source.created(Some(window.after), window.through, SEARCH_LIMIT).await {
                Err(ApiError::TooLong { .. }) if self.windows.too_long(window).is_ok() => continue,
                Err(error) => {
                    self.windows.forget_unsettled();
                    return Err(error.into());
                }
                Ok(page) => page,
            };
            let in_range = |offset| Some(offset) > self.above && offset <= self.top;
            self.windows.read(window, page, in_range).map_err(|_| self.in_doubt())?;
        }
    }

    /// Returns whether everything up to the end of time was read.
    pub(crate) fn is_over(&self) -> bool {
        self.windows.next().is_none()
    }

    fn in_doubt(&self) -> ReadError {
        ReadError::InDoubt { above: self.windows.settled().max(self.above), below: self.top }
    }
}
