//! Logs: destination and format.
//!
//! Each line describes one event. It goes to standard error, in the `text` format
//!
//! ```text
//! 2026-05-14T12:00:15.000000Z  WARN sink refused: its events wait and will be offered again channel=settlements sink=ledger wait_ms=1000 error=answered 503
//! ```
//!
//! or, in the `json` format, as one object with `timestamp`, `level`, `target`, `message` and the fields. If standard
//! error goes to the journal, each line begins with its priority (`<3>` to `<7>`), which the journal removes. `message`
//! is one of a fixed number of texts, so it can be searched and counted. Variable parts are in fields:
//!
//! | field | meaning |
//! |---|---|
//! | `channel` | the channel's name in the configuration |
//! | `channel_id` | its id at the service, if the name is unknown or not sufficient |
//! | `sink` | the sink's name in the configuration |
//! | `offset` | an event's offset; in `batch recorded` the new cursor |
//! | `event_id` | the service's id of an event |
//! | `attempt`, `attempts` | how often the operation was tried |
//! | `wait_ms` | the wait until the next attempt |
//! | `trace_id` | the batch: 32 hexadecimal digits, the same in every line from reading the batch to recording it |
//! | `joined_to` | another batch: the batch `trace_id` is offered and recorded together with it |
//! | `error` | the error and its causes, outermost first |
//! | `kind`, `reason`, `detail` | constant name of the error; constant name of a rejection's reason; its description |
//! | `by`, `request` | in `requested by an operator`: the user, and the path of the operator API |
//! | `path`, `bytes`, `events` | a file, its size, and its number of events |
//! | `lines`, `window_s`, `like` | in `more lines like this were not written`: their number, the window, and their message |
//!
//! `error`: a person must act. `warn`: the problem resolves itself, or an operator caused it. `info`: the daemon's life
//! cycle. `debug`: batches. `trace`: events. Repeated lines are limited, see [`Limit`].
//!
//! # Invariants
//!
//! * **A line is one line,** and special characters from a service, a file name or an event are made visible: see
//!   `format`.
//! * **A line contains neither a body nor a secret.**
//! * **Logging never waits for standard error:** see [`LogQueue`].

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal};
use std::str::FromStr;

use strum::{EnumString, VariantNames};
use tracing::Subscriber;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, reload};

mod format;
mod limit;
pub mod metrics;
mod queue;
pub mod trace;

pub use format::{CRATES, is_journal};
pub use limit::{ALWAYS, Limit};
pub use queue::{LogQueue, LogStall};

use format::{Json, Prefixed, directives, on_one_line};

/// Directives that silence libraries, because the lines of these libraries only repeat channeld's own lines, less
/// clearly. `log.level` can enable each library.
const QUIET: &str =
    "sled=off,hyper=off,h2=off,reqwest=off,rustls=off,opentelemetry=off,async_nats=off,rdkafka=off,librdkafka=off";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The log settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Which lines are logged.
    pub level: LogLevel,
    /// The format of a line.
    pub format: LogFormat,
}

/// A level, or levels by module, in the syntax of [`EnvFilter`]. It is checked when it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLevel(Box<str>);

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let directives = text.trim();
        // `EnvFilter` accepts a misspelled level as the name of a module, and would then silence everything else.
        let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let understood = directives.split(',').all(|part| part.contains('=') || is_level(part.trim()));
        if !understood || EnvFilter::try_new(directives).is_err() {
            return Err(format!(
                "must be one of {}, or levels by module, such as \"info,channeld::api=debug\"",
                LEVELS.join(", ")
            ));
        }
        Ok(Self(directives.into()))
    }
}

/// The part of the logs that can change while the program runs.
#[derive(Debug)]
pub struct Logs {
    level: reload::Handle<EnvFilter, Registry>,
    /// The limit on repeated lines.
    pub limit: Limit,
    /// The lines that wait to be written.
    pub queue: LogQueue,
}

impl Logs {
    /// Changes the level.
    pub fn set(&self, log: &Log) {
        if let Err(error) = self.level.reload(filter(log)) {
            tracing::warn!(%error, "the log level could not be changed");
        }
    }
}

fn filter(log: &Log) -> EnvFilter {
    EnvFilter::new(format!("{QUIET},{}", directives(&log.level.0)))
}

/// Sends logs to standard error. Standard output is for events. The caller must [flush](LogQueue::flush) the queue before
/// the program ends.
///
/// # Errors
/// If the system starts no thread.
pub fn init(log: &Log) -> io::Result<Logs> {
    let ((filter, level), limit) = (reload::Layer::new(filter(log)), Limit::default());
    let queue = LogQueue::start(io::stderr())?;
    let lines = lines(log.format, queue.clone(), io::stderr().is_terminal(), is_journal());
    tracing_subscriber::registry().with(filter).with(limit.clone()).with(lines).init();
    Ok(Logs { level, limit, queue })
}

/// Like [`init`], but for a person at a terminal: without the time of day and without a limit.
pub fn init_plain(log: &Log) {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .fmt_fields(on_one_line())
        .with_ansi(io::stderr().is_terminal())
        .without_time();
    tracing_subscriber::registry().with(filter(log)).with(lines).init();
}

fn lines<S, W>(format: LogFormat, to: W, with_colours: bool, with_priority: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(to).with_ansi(with_colours);
    let text = tracing_subscriber::fmt::format().with_target(false);
    match (format, with_priority) {
        (LogFormat::Text, false) => lines.fmt_fields(on_one_line()).event_format(text).boxed(),
        (LogFormat::Text, true) => lines.fmt_fields(on_one_line()).event_format(Prefixed(text)).boxed(),
        (LogFormat::Json, false) => lines.event_format(Json).boxed(),
        (LogFormat::Json, true) => lines.event_format(Prefixed(Json)).boxed(),
    }
}

#[cfg(test)]
mod tests;
