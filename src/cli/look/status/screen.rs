//! `channeld status --watch` on a terminal: a full screen with a page for each channel.
//!
//! # Invariants
//!
//! * **The terminal is restored** at the end, after an error, a panic or a signal, and while Ctrl-Z suspends the command.
//! * **The top line always says whether the daemon is ready.** The daemon itself decides this; nothing is computed
//!   here.
//!
//! # Cancellation
//!
//! Dropping [`watch`] restores the terminal.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Fuse, FutureExt};
use jiff::Timestamp;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, EventStream, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use tokio::time::sleep;

use crate::cli::act::pause::outcome;
use crate::cli::context::{CommandError, Exit};
use crate::cli::operate::Operator;
use crate::daemon::signals::{self, Signals};
use operator::api::{GetLastHour, GetStatus, SetPaused};

mod help;
mod list;
mod navigation;
mod page;
mod pause;
#[cfg(test)]
mod tests;
mod trend;
mod view;

use navigation::{KeyAction, Model};

/// Updates and shows the report at the interval `every`, until `q`, Ctrl-C or a signal.
pub(super) async fn watch(operator: &Operator, every: Duration) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(CommandError::output)?;
    let mut screen = Screen::open().map_err(CommandError::output)?;
    let mut model = Model { signer_names: operator.config.signer_names.clone(), ..Model::default() };
    let ask = async |wait| {
        sleep(wait).await;
        operator.ask_daemon(&GetStatus { here: false }).await.map_err(|failure| failure.to_string())
    };
    let look_back = async |channel: Arc<str>| {
        let request = GetLastHour { channels: vec![channel.to_string()], here: false };
        // Without an answer, the screen shows no trend. The request for the status then fails for the same reason, which the screen shows.
        let hours = operator.ask_daemon(&request).await.unwrap_or_default();
        (channel, hours.into_iter().next().map_or_else(Vec::new, |hour| hour.facts.samples))
    };
    // Also returns the new status, so that the screen shows the effect together with the notice.
    let send = async |request: SetPaused| {
        let sent = operator.ask_daemon(&request).await;
        let notice = sent.map_or_else(|failure| failure.to_string(), |changed| outcome(&request, changed));
        (notice, ask(Duration::ZERO).await)
    };
    let mut asking = Box::pin(ask(Duration::ZERO));
    let (mut looking_back, mut sending) = (Box::pin(Fuse::terminated()), Box::pin(Fuse::terminated()));
    let mut events = EventStream::new();
    loop {
        let now = Timestamp::now();
        screen.0.draw(|frame| view::draw(frame, &mut model, now)).map_err(CommandError::output)?;
        tokio::select! {
            answer = &mut asking => {
                model.refresh(answer);
                asking.set(ask(every));
                if let Some(channel) = model.shown_channel() {
                    looking_back.set(look_back(channel.channel.clone()).fuse());
                }
            }
            hour = &mut looking_back => model.hour = Some(hour),
            (notice, answer) = &mut sending => {
                model.notice = Some(notice);
                model.refresh(answer);
                // An older answer could still be on its way.
                asking.set(ask(every));
            }
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => match model.key(key) {
                    KeyAction::GoOn => {
                        if let Some(channel) = model.channel_without_hour() {
                            looking_back.set(look_back(channel).fuse());
                        }
                    }
                    KeyAction::Send(request) => sending.set(send(request).fuse()),
                    KeyAction::Suspend => screen.suspend().await.map_err(CommandError::output)?,
                    KeyAction::End => return Ok(Exit::Done),
                },
                Some(Ok(_)) => {}
                // The terminal is closed.
                Some(Err(_)) | None => return Ok(Exit::Done),
            },
            _ = signals.next() => return Ok(Exit::Done),
        }
    }
}

/// The terminal. It shows the screen until this value is dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        // This also restores the terminal if the program panics, before the panic is reported.
        ratatui::try_init().inspect_err(|_| ratatui::restore()).map(Self)
    }

    /// Restores the terminal and suspends the process, as Ctrl-Z does in other programs. When the process continues, takes
    /// the terminal over again.
    async fn suspend(&mut self) -> io::Result<()> {
        self.0.show_cursor()?;
        ratatui::try_restore()?;
        signals::suspend().await?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        // A new `Terminal` has no previous screen to compare with, so it draws everything.
        self.0 = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
