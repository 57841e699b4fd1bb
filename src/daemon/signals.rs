//! The process's signals: stop and reload.

use std::io;

use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

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
