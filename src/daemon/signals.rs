//! The signals of the process: stop, reload and, for a command at a terminal, suspend.

use std::io;
use std::time::Duration;

use futures_util::StreamExt;
use rustix::process::kill_current_process_group;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use tokio::time::timeout;

/// How long to wait for the effect of the signal that suspends the process. The system ignores the signal if no shell is left
/// that could continue the process.
const NOT_STOPPED: Duration = Duration::from_millis(200);

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: finish the current batches and end.
    Stop,
    /// SIGHUP: read the configuration and the secrets again.
    Reload,
}

/// The stream of signals of this process.
pub(crate) struct Signals(signal_hook_tokio::Signals);

impl Signals {
    /// Replaces the default action of the signals, which would end the process.
    pub(crate) fn listen() -> io::Result<Self> {
        signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP]).map(Self)
    }

    /// Returns the next signal. The future can be dropped: a signal that arrived is kept for the next call.
    pub(crate) async fn next(&mut self) -> Signal {
        match self.0.next().await {
            Some(SIGHUP) => Signal::Reload,
            Some(_) => Signal::Stop,
            // The stream ends only when its handle closes it, and no code keeps the handle.
            None => std::future::pending().await,
        }
    }
}

/// While this value exists, Ctrl-C does not end the process. The programs that it has started still receive the signal.
pub(crate) struct IgnoredInterrupts {
    _signals: signal_hook_tokio::Signals,
}

impl IgnoredInterrupts {
    pub(crate) fn begin() -> io::Result<Self> {
        Ok(Self { _signals: signal_hook_tokio::Signals::new([SIGINT])? })
    }
}

/// Suspends this process and the other processes of its shell job until the shell continues them. A program that handles
/// the keys of the terminal itself calls this for Ctrl-Z.
///
/// # Errors
/// If the process cannot send the signal to itself, or cannot listen for the signal that continues it.
pub(crate) async fn suspend() -> io::Result<()> {
    let mut continued = signal_hook_tokio::Signals::new([SIGCONT])?;
    kill_current_process_group(rustix::process::Signal::TSTP)?;
    // Both results are fine: the process was suspended and continued, or it was not suspended.
    let _ = timeout(NOT_STOPPED, continued.next()).await;
    Ok(())
}
