//! The ranges that come next: on their way, and heard, while the one before is judged and handed on.
//!
//! While there is more to read a task of its own reads on. The range that comes next is heard as soon as it is there, so
//! that no processor waits for the last events of the range before; and the one after it is asked for meanwhile, so that
//! none waits for the service either. Where there is no more, reading is left to whoever asks.
//!
//! # Invariants
//!
//! * **Two ahead.** No more than one range is heard, or has been, and waits to be taken; and no more than one is on its way
//!   behind it, or has come.
//! * **From where reading really goes on.** Ranges that were asked for from elsewhere than where their turn finds us are
//!   thrown away, and the reader with them, which has moved on.
//!
//! # Cancellation
//!
//! At any point: what is on its way ahead of its turn stays so until it is taken, or ends with the [`Ahead`]; what is read in
//! its turn is read anew.

use std::ops::Range as Span;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::event::Offset;
use crate::joined::joined;

use super::ChannelError;
use super::clerk::Heard;
use super::reader::{Range, ReadError, Reader};
use super::shared::Way;
use super::turns::Turn;

/// Reads one channel upwards, in one way, from wherever it is told to.
#[derive(Debug)]
pub(super) struct Ahead {
    way: Arc<Way>,
    /// `None` while it reads ahead, and where a reading was given up half-way.
    reader: Option<Reader>,
    reading: Option<Reading>,
}

/// What is read ahead.
#[derive(Debug)]
struct Reading {
    task: AbortOnDropHandle<()>,
    arrived: mpsc::Receiver<Early>,
    /// The last offset before what arrives next.
    above: Option<Offset>,
}

/// What came, and the reader, where nothing more is read ahead.
#[derive(Debug)]
struct Early(Arrived, Option<Reader>);

/// What came of reading.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) range: Result<Coming, ReadError>,
    /// From the first request until the last answer.
    pub(super) took: Span<SystemTime>,
    /// Whether it was asked for before its turn: what it says of there being more is of that time.
    pub(super) early: bool,
}

/// A range that is being heard.
#[derive(Debug)]
pub(super) struct Coming {
    /// Its last offset; `None` where it holds nothing.
    pub(super) last: Option<Offset>,
    /// Whether it is worth asking for more at once.
    pub(super) more: bool,
    hearing: Option<AbortOnDropHandle<Result<Vec<Heard>, ChannelError>>>,
}

impl Ahead {
    pub(super) fn new(way: Arc<Way>) -> Self {
        Self { reader: Some(way.reader()), way, reading: None }
    }

    /// The next events above `last`, which may be none. `last` is where the range before ended, as far as it counted.
    pub(super) async fn next(&mut self, last: Option<Offset>) -> Arrived {
        if self.reading.as_ref().is_some_and(|reading| reading.above != last) {
            self.forget();
        }
        let Some(reading) = &mut self.reading else { return self.read(last).await };
        let Early(arrived, reader) = reading.next().await;
        reading.above = arrived.last();
        if let Some(reader) = reader {
            (self.reading, self.reader) = (None, Some(reader));
        }
        arrived
    }

    /// Begins anew: what was read of a range already is from before.
    pub(super) fn forget(&mut self) {
        (self.reading, self.reader) = (None, Some(self.way.reader()));
    }

    async fn read(&mut self, last: Option<Offset>) -> Arrived {
        let mut reader = self.reader.take().unwrap_or_else(|| self.way.reader());
        let arrived = Arrived::of(read(&mut reader, last, &self.way).await, false, &self.way);
        if arrived.leads_on() {
            let (sender, receiver) = mpsc::channel(1);
            let above = arrived.last();
            let task = tokio::spawn(read_on(reader, self.way.clone(), above, sender));
            self.reading = Some(Reading { task: AbortOnDropHandle::new(task), arrived: receiver, above });
        } else {
            self.reader = Some(reader);
        }
        arrived
    }
}

impl Reading {
    async fn next(&mut self) -> Early {
        if let Some(early) = self.arrived.recv().await {
            return early;
        }
        joined((&mut self.task).await).await;
        unreachable!("the last that arrives has the reader with it, and ends the reading")
    }
}

impl Arrived {
    /// Has the range heard, where there is one.
    fn of(Read { range, took, turn }: Read, early: bool, way: &Way) -> Self {
        Self { range: range.map(|range| Coming::new(range, turn, way)), took, early }
    }

    fn last(&self) -> Option<Offset> {
        self.range.as_ref().ok()?.last
    }

    fn leads_on(&self) -> bool {
        self.range.as_ref().is_ok_and(|range| range.more && range.last.is_some())
    }
}

impl Coming {
    fn new(Range { events, more }: Range, turn: Turn, way: &Way) -> Self {
        let last = events.last().map(|event| event.offset);
        let hearing = last.map(|_| {
            let hearing = way.judge.hear(events);
            AbortOnDropHandle::new(tokio::spawn(async move {
                let heard = hearing.await;
                drop(turn);
                heard
            }))
        });
        Self { last, more, hearing }
    }

    /// The events, in their order, once all of them have been heard.
    pub(super) async fn heard(self) -> Result<Vec<Heard>, ChannelError> {
        match self.hearing {
            None => Ok(Vec::new()),
            Some(hearing) => joined(hearing.await).await,
        }
    }
}

/// What a reading gave, and from when until when it took.
struct Read {
    range: Result<Range, ReadError>,
    took: Span<SystemTime>,
    turn: Turn,
}

/// Reads on for as long as there is more, and hears what it has read once what was heard before has been taken.
async fn read_on(mut reader: Reader, way: Arc<Way>, mut last: Option<Offset>, ranges: mpsc::Sender<Early>) {
    loop {
        let mut read = read(&mut reader, last, &way).await;
        let room = if let Ok(room) = ranges.try_reserve() {
            room
        } else {
            // Others have their turns for as long as nobody takes what was read.
            read.turn = Turn::default();
            let Ok(room) = ranges.reserve().await else { return };
            read.turn = way.judge.turn().await;
            room
        };
        let arrived = Arrived::of(read, true, &way);
        last = arrived.last();
        if !arrived.leads_on() {
            room.send(Early(arrived, Some(reader)));
            return;
        }
        room.send(Early(arrived, None));
    }
}

/// Reads in a turn, where there may be much to read. A channel that has come to the end asks whenever it wants to.
async fn read(reader: &mut Reader, last: Option<Offset>, way: &Way) -> Read {
    let turn = if reader.is_behind() { way.judge.turn().await } else { Turn::default() };
    let began = SystemTime::now();
    let range = reader.next(last).await;
    Read { range, took: began..SystemTime::now(), turn }
}
