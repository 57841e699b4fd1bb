//! The next range, on its way while the one before is judged and handed on.
//!
//! # Invariants
//!
//! * **One ahead.** No more than one range is on its way, or has come and waits.
//! * **From where reading really goes on.** A range that was asked for from elsewhere than where its turn finds us is thrown
//!   away, and the reader with it, which has moved on by that range.
//!
//! # Cancellation
//!
//! At any point: what is on its way ahead of its turn stays so until it is taken, or ends with the [`Ahead`]; what is read in
//! its turn is read anew.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::task::JoinSet;

use crate::event::Offset;

use super::reader::{Range, ReadError, Reader};
use super::shared::Way;

/// Reads one channel upwards, in one way, from wherever it is told to.
#[derive(Debug)]
pub(super) struct Ahead {
    way: Arc<Way>,
    /// `None` while it reads ahead, and where a reading was given up half-way.
    reader: Option<Reader>,
    reading: JoinSet<(Reader, Arrived)>,
    /// The last offset before the range that is on its way.
    above: Option<Offset>,
}

/// What came of reading.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) range: Result<Range, ReadError>,
    /// From the first request until the last answer.
    pub(super) took: std::ops::Range<SystemTime>,
    /// Whether it was asked for before its turn: what it says of there being more is of that time.
    pub(super) early: bool,
}

impl Ahead {
    pub(super) fn new(way: Arc<Way>) -> Self {
        Self { reader: Some(way.reader()), way, reading: JoinSet::new(), above: None }
    }

    /// Has the next events above `last` read, until they are asked for.
    pub(super) fn begin(&mut self, last: Option<Offset>) {
        let mut reader = self.reader();
        self.above = last;
        self.reading.spawn(async move {
            let arrived = read(&mut reader, last, true).await;
            (reader, arrived)
        });
    }

    /// The next events above `last`, which may be none. `last` is where the range before ended, as far as it counted.
    pub(super) async fn next(&mut self, last: Option<Offset>) -> Arrived {
        if !self.reading.is_empty() && self.above != last {
            self.forget();
        }
        let Some(read_ahead) = self.reading.join_next().await else {
            let mut reader = self.reader();
            let arrived = read(&mut reader, last, false).await;
            self.reader = Some(reader);
            return arrived;
        };
        match read_ahead.map_err(tokio::task::JoinError::try_into_panic) {
            Ok((reader, arrived)) => {
                self.reader = Some(reader);
                arrived
            }
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // Only a runtime that is being torn down ends a task, and that will not poll us again either.
            Err(Err(_cancelled)) => std::future::pending().await,
        }
    }

    /// Begins anew: what was read of a range already is from before.
    pub(super) fn forget(&mut self) {
        self.reading = JoinSet::new();
        self.reader = Some(self.way.reader());
    }

    fn reader(&mut self) -> Reader {
        self.reader.take().unwrap_or_else(|| self.way.reader())
    }
}

async fn read(reader: &mut Reader, last: Option<Offset>, early: bool) -> Arrived {
    let began = SystemTime::now();
    let range = reader.next(last).await;
    Arrived { range, took: began..SystemTime::now(), early }
}
