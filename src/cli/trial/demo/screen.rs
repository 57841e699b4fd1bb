//! The sink that prints the events of the demonstration.

use std::borrow::Cow;
use std::io::{ErrorKind, Write};
use std::sync::Mutex;

use async_trait::async_trait;

use crate::cli::terminal::event_line::{EventLine, Layout};
use ledger::Quarantined;
use net::tasks::lock;
use proof::event::Offset;
use record::{Message, Readable, rfc3339};
use sink::{Delivery, Sink, SinkError, Undelivered};

/// A sink that prints events up to a limit, and then closes.
#[derive(Debug)]
pub(super) struct ScreenSink {
    limit: Option<u64>,
    pub(super) shown: Mutex<ScreenState>,
}

#[derive(Debug, Default)]
pub(super) struct ScreenState {
    /// The layout without a column for the channel, because the demonstration has only one channel.
    layout: Layout,
    pub(super) verified: u64,
    pub(super) unsigned: u64,
    /// Verified events that were delivered after newer events.
    pub(super) late: u64,
    highest: Option<Offset>,
}

impl ScreenSink {
    pub(super) fn new(limit: Option<u64>) -> Self {
        let layout = Layout::of_stdout([]);
        Self { limit, shown: Mutex::new(ScreenState { layout, ..ScreenState::default() }) }
    }

    /// Prints a rejected event, although no sink receives it.
    pub(super) fn show_rejected(&self, Quarantined { offset, reason, at, .. }: &Quarantined) {
        let parts = Readable {
            verdict: Cow::Borrowed("rejected"),
            channel: String::new(),
            offset: *offset,
            time: rfc3339(*at).unwrap_or_default(),
            kind: "not delivered".to_owned(),
            what: reason.clone(),
            proof: String::new(),
            confidence: String::new(),
        };
        let lines = lock(&self.shown).layout.lines(&EventLine { parts, position: None, is_late: false });
        // The error is ignored: if the output is closed, the next delivery notices.
        let _ = writeln!(anstream::stdout(), "{lines}");
    }
}

#[async_trait]
impl Sink for ScreenSink {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let mut shown = lock(&self.shown);
        // Closes right after the last event is printed, without waiting for another event.
        for at in 0..=delivery.messages.len() {
            if self.limit.is_some_and(|limit| shown.verified + shown.unsigned >= limit) {
                return Err(Undelivered::after(at, SinkError::Closed));
            }
            if let Some(message) = delivery.messages.get(at) {
                shown.print(message).map_err(|error| Undelivered::after(at, error))?;
            }
        }
        Ok(())
    }
}

impl ScreenState {
    fn print(&mut self, message: &Message) -> Result<(), SinkError> {
        let (offset, is_verified) = (message.offset(), message.record().is_verified());
        let late = self.highest > Some(offset);
        let event = EventLine { parts: Readable::of(message.record()), position: None, is_late: late };
        self.layout.follow_terminal();
        let lines = self.layout.lines(&event);
        writeln!(anstream::stdout(), "{lines}").map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => SinkError::Closed,
            _ => SinkError::io("writing to standard output", error),
        })?;
        self.highest = self.highest.max(Some(offset));
        self.verified += u64::from(is_verified);
        self.unsigned += u64::from(!is_verified);
        self.late += u64::from(is_verified && late);
        Ok(())
    }
}
