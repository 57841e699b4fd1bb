//! A sink that prints one readable line an event.

use std::io::{ErrorKind, Write};
use std::sync::Mutex;

use anstyle::{AnsiColor, Style};
use async_trait::async_trait;

use crate::event::Offset;
use crate::record::{Message, Readable};
use crate::sink::{Delivery, Sink, SinkError, Undelivered};
use crate::tasks::lock;

const VERIFIED: Style = AnsiColor::Green.on_default().bold();
const UNSIGNED: Style = AnsiColor::Yellow.on_default();
const QUIET: Style = Style::new().dimmed();

/// Prints events, up to a limit; then it is closed.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) limit: Option<u64>,
    pub(super) shown: Mutex<Shown>,
}

/// What has been shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    pub(super) verified: u64,
    pub(super) unsigned: u64,
    /// Of the verified ones, those that came after younger ones.
    pub(super) late: u64,
    highest: Option<Offset>,
}

#[async_trait]
impl Sink for Screen {
    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let mut shown = lock(&self.shown);
        // Ends with the last event that is shown, and not before the next one.
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

impl Shown {
    fn print(&mut self, message: &Message) -> Result<(), SinkError> {
        let (offset, is_verified) = (message.offset(), message.record().is_verified());
        let late = self.highest > Some(offset);
        writeln!(anstream::stdout(), "{}", line(message, late)).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => SinkError::Closed,
            _ => SinkError::Io { doing: "writing to standard output".to_owned(), source: error },
        })?;
        self.highest = self.highest.max(Some(offset));
        self.verified += u64::from(is_verified);
        self.unsigned += u64::from(!is_verified);
        self.late += u64::from(is_verified && late);
        Ok(())
    }
}

/// The readable line in colours, without the channel: there is one.
fn line(message: &Message, late: bool) -> String {
    let Readable { verdict, channel: _, offset, time, kind, what, proof } = Readable::of(message.record());
    let style = if message.record().is_verified() { VERIFIED } else { UNSIGNED };
    format!(
        "{style}{verdict:<8}{style:#} {offset:>5}  {QUIET}{time:<20}{QUIET:#}  {kind:<16}  {what:<28} {QUIET}{proof}{}{QUIET:#}",
        if late { ", its proof came late" } else { "" },
    )
}
