//! `channeld status --watch` on a terminal: a full screen with a page for each channel.
//!
//! # Invariants
//!
//! * **The terminal is restored** at the end, after an error, a panic or a signal, and while Ctrl-Z suspends the command.
//! * **The verdict is always at the top**, and it is the daemon's own verdict.
//!
//! # Cancellation
//!
//! Dropping [`watch`] restores the terminal.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::cli::exit::{Exit, Failure};
use crate::cli::operate::Operator;
use crate::daemon::signals::{self, Signals};
use operator::api::GetStatus;

mod health;
mod navigation;
mod page;
#[cfg(test)]
mod tests;
mod view;

use navigation::{Model, Then};

/// How often the reading thread checks whether the screen has ended, if no key is pressed.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum number of keys that wait to be handled.
const WAITING: usize = 64;

/// Whether standard output is a terminal to draw on, and standard input a terminal to read keys from.
pub(super) fn is_possible() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Updates and shows the report at the interval `every`, until `q`, Ctrl-C or a signal.
pub(super) async fn watch(operator: &Operator, every: Duration) -> Result<Exit, Failure> {
    let mut signals = Signals::listen().map_err(Failure::output)?;
    let mut screen = Screen::open().map_err(Failure::output)?;
    let mut model = Model::with(operator.config.signer_names.clone());
    let ask = async |wait| {
        sleep(wait).await;
        operator.ask_daemon(&GetStatus { here: false }).await
    };
    let mut asking = Box::pin(ask(Duration::ZERO));
    loop {
        let now = Timestamp::now();
        screen.terminal.draw(|frame| view::draw(frame, &mut model, now)).map_err(Failure::output)?;
        tokio::select! {
            answer = &mut asking => {
                model.refresh(answer.map_err(|failure| failure.to_string()), Timestamp::now());
                asking.set(ask(every));
            }
            event = screen.events.recv() => match event {
                Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                    match model.key(key) {
                        Then::GoOn => {}
                        Then::Suspend => screen.suspend().await.map_err(Failure::output)?,
                        Then::End => return Ok(Exit::Done),
                    }
                }
                Some(_) => {}
                // The terminal is closed.
                None => return Ok(Exit::Done),
            },
            _ = signals.next() => return Ok(Exit::Done),
        }
    }
}

/// The terminal, taken over until this is dropped.
struct Screen {
    terminal: DefaultTerminal,
    events: mpsc::Receiver<Event>,
    has_ended: Arc<AtomicBool>,
    _reading: JoinHandle<()>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        // This also restores the terminal if the program panics, before the panic is reported.
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        let (sender, events) = mpsc::channel(WAITING);
        let has_ended = Arc::<AtomicBool>::default();
        let ended = has_ended.clone();
        let reading = tokio::task::spawn_blocking(move || read(&sender, &ended));
        Ok(Self { terminal, events, has_ended, _reading: reading })
    }

    /// Restores the terminal and stops the process, as Ctrl-Z does on a terminal that handles its keys itself. When the
    /// process continues, takes the terminal over again.
    async fn suspend(&mut self) -> io::Result<()> {
        self.terminal.show_cursor()?;
        ratatui::try_restore()?;
        signals::suspend().await?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All))?;
        // A new terminal has drawn nothing yet, so it draws everything.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        ratatui::restore();
    }
}

/// Reads keys until the screen has ended or the terminal is closed.
fn read(events: &mpsc::Sender<Event>, has_ended: &AtomicBool) {
    while !has_ended.load(Ordering::Relaxed) {
        match event::poll(LOOK) {
            Ok(false) => {}
            Ok(true) => {
                let Ok(event) = event::read() else { return };
                if events.blocking_send(event).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
