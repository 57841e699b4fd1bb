//! The sink that prints the events of the demonstration.

use std::borrow::Cow;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

use async_trait::async_trait;

use crate::cli::terminal::event_line::{EventLine, Layout};
use crate::cli::terminal::lines_of_stdout;
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
    kept: Option<KeptLines>,
}

impl ScreenSink {
    pub(super) fn new(limit: Option<u64>) -> Self {
        let layout = Layout::of_stdout([]);
        Self { limit, shown: Mutex::new(ScreenState { layout, ..ScreenState::default() }) }
    }

    /// Prints an event that is not delivered, or not yet, with the command that explains the reason.
    pub(super) fn show_set_aside(&self, verdict: &'static str, offset: Offset, at: i64, topic: &str) {
        let parts = Readable {
            verdict: Cow::Borrowed(verdict),
            channel: String::new(),
            offset,
            time: rfc3339(at).unwrap_or_default(),
            kind: String::new(),
            what: format!("channeld explain {topic}"),
            proof: String::new(),
            confidence: String::new(),
        };
        // The error is ignored: if the output is closed, the next delivery notices.
        let _ = lock(&self.shown).print(&EventLine { parts, position: None, is_late: false });
    }

    /// From now on, repeats these lines when they have scrolled off the terminal.
    pub(super) fn keep_visible(&self, text: &str) {
        lock(&self.shown).kept = Some(KeptLines { text: text.to_owned(), since: 0 });
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
                shown.deliver(message).map_err(|error| Undelivered::after(at, error))?;
            }
        }
        Ok(())
    }
}

/// Lines that stay visible on a terminal while events scroll.
#[derive(Debug)]
struct KeptLines {
    text: String,
    /// How many lines were printed since the text was visible at the bottom.
    since: usize,
}

impl KeptLines {
    /// Notes that lines are printed. Returns the text if it is no longer visible on a terminal of this height.
    fn after(&mut self, printed: usize, height: usize) -> Option<&str> {
        self.since += printed;
        if self.since + self.text.lines().count() < height {
            return None;
        }
        self.since = 0;
        Some(&self.text)
    }
}

impl ScreenState {
    fn deliver(&mut self, message: &Message) -> Result<(), SinkError> {
        let (offset, is_verified) = (message.offset(), message.record().is_verified());
        let late = self.highest > Some(offset);
        self.print(&EventLine { parts: Readable::of(message.record()), position: None, is_late: late }).map_err(
            |error| match error.kind() {
                ErrorKind::BrokenPipe => SinkError::Closed,
                _ => SinkError::io("writing to standard output", error),
            },
        )?;
        self.highest = self.highest.max(Some(offset));
        self.verified += u64::from(is_verified);
        self.unsigned += u64::from(!is_verified);
        self.late += u64::from(is_verified && late);
        Ok(())
    }

    fn print(&mut self, event: &EventLine) -> io::Result<()> {
        self.layout.follow_terminal();
        let lines = self.layout.lines(event);
        let mut out = anstream::stdout();
        writeln!(out, "{lines}")?;
        let kept = self.kept.as_mut().zip(lines_of_stdout());
        match kept.and_then(|(kept, height)| kept.after(lines.lines().count(), height)) {
            Some(text) => writeln!(out, "{text}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_lines_are_repeated_before_they_leave_the_screen() {
        let mut kept = KeptLines { text: "open\n  this\n".to_owned(), since: 0 };
        let repeated: Vec<_> = (1..=20).filter(|_| kept.after(1, 10).is_some()).collect();
        assert_eq!(repeated, [8, 16]);
        assert!(kept.after(30, 10).is_some(), "many lines at once");
    }
}
