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
use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, EventStream, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use tokio::time::sleep;

use crate::cli::context::{CommandError, Exit};
use crate::cli::operate::Operator;
use crate::daemon::signals::{self, Signals};
use operator::api::GetStatus;

mod navigation;
mod page;
#[cfg(test)]
mod tests;
mod view;

use navigation::{KeyAction, Model};

/// Updates and shows the report at the interval `every`, until `q`, Ctrl-C or a signal.
pub(super) async fn watch(operator: &Operator, every: Duration) -> Result<Exit, CommandError> {
    let mut signals = Signals::listen().map_err(CommandError::output)?;
    let mut screen = Screen::open().map_err(CommandError::output)?;
    let mut model = Model { signer_names: operator.config.signer_names.clone(), ..Model::default() };
    let ask = async |wait| {
        sleep(wait).await;
        operator.ask_daemon(&GetStatus { here: false }).await
    };
    let mut asking = Box::pin(ask(Duration::ZERO));
    let mut events = EventStream::new();
    loop {
        let now = Timestamp::now();
        screen.0.draw(|frame| view::draw(frame, &mut model, now)).map_err(CommandError::output)?;
        tokio::select! {
            answer = &mut asking => {
                model.refresh(answer.map_err(|failure| failure.to_string()));
                asking.set(ask(every));
            }
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => match model.key(key) {
                    KeyAction::GoOn => {}
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
