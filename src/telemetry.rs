//! Logs: where they go and how they look.

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, Layer, Registry, layer::SubscriberExt, reload, util::SubscriberInitExt};

use crate::config::{Log, LogFormat};

/// Libraries that would drown what the daemon says at `debug` and `trace`. `log.level` can name each to hear it again.
const QUIET: &str = "sled=warn,hyper=warn,hyper_util=warn,h2=warn,reqwest=warn,rustls=warn";

/// An error with all that caused it, in one line.
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// The level, which can be changed while the program runs.
#[derive(Debug)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Changes it.
    pub fn set(&self, log: &Log) {
        if let Err(error) = self.0.reload(filter(log)) {
            tracing::warn!(%error, "the log level could not be changed");
        }
    }
}

fn filter(log: &Log) -> EnvFilter {
    EnvFilter::new(format!("{QUIET},{}", log.level))
}

/// Sends logs to standard error. Standard output is for events.
#[must_use]
pub fn init(log: &Log) -> LogLevel {
    let (filter, level) = reload::Layer::new(filter(log));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).init();
    LogLevel(level)
}

/// As [`init`], for a person who watches: without the time of day.
pub fn init_plain(log: &Log) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .without_time();
    tracing_subscriber::registry().with(filter(log)).with(lines).init();
}
