//! The process's signals: stop and reload, and, of a command at a terminal, suspend.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::kill_current_process_group;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use tokio::time::timeout;

/// The system does not stop a process that nothing would let go on. One that goes on for so long was not stopped.
const NOT_STOPPED: Duration = Duration::from_millis(200);

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: finish the batches in hand and end.
    Stop,
    /// SIGHUP: read the configuration and the secrets again.
    Reload,
}

/// The stream of signals of this process.
pub(crate) struct Signals(signal_hook_tokio::Signals);

impl Signals {
    /// Takes the signals over from their default action, which would end the process.
    pub(crate) fn listen() -> io::Result<Self> {
        signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP]).map(Self)
    }

    /// The next signal. Can be dropped: a signal that came is kept for the next call.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.0.next().await {
            Some(SIGHUP) => Signal::Reload,
            Some(_) => Signal::Stop,
            // The stream ends only when its handle closes it, and nothing keeps the handle.
            None => std::future::pending().await,
        }
    }
}

/// Stops this process with the rest of its job, which a shell waits for, until it is let go on: as Ctrl-Z does where the
/// terminal looks after its keys itself.
///
/// # Errors
/// If the signal cannot be sent or noticed.
pub(crate) async fn suspend() -> io::Result<()> {
    let mut continued = signal_hook_tokio::Signals::new([SIGCONT])?;
    kill_current_process_group(rustix::process::Signal::TSTP)?;
    // Either is right: it went on, or was not stopped.
    let _ = timeout(NOT_STOPPED, continued.next()).await;
    Ok(())
}
