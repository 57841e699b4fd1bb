//! Limits repeated log lines to twenty of each kind per minute, and logs afterwards how many lines were suppressed.
//!
//! The limit is for flapping problems: a sink that alternates between success and failure, a service that fails every
//! second request, or thousands of forged events.
//!
//! # Invariants
//!
//! * **Kinds are independent.** Lines are counted by their place in the code, and by the channel and sink that they
//!   name.
//! * **The number of suppressed lines is logged,** at the end of each window and when the program ends.
//! * **Lines with the target [`ALWAYS`] are always written:** the daemon's life cycle and the actions of operators.
//!   `debug` and `trace` lines are also always written: an operator enables them to see everything.
//! * **Memory is bounded** by [`MAX_KINDS`].
//!
//! # Cancellation
//!
//! [`Limit::watch`] may be dropped at any point. [`Limit::end`] logs the remaining counts.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::tasks::lock;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit, display};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

#[cfg(test)]
mod tests;

/// The target of lines that are always written.
pub const ALWAYS: &str = "channeld::always";

/// The time window in which the lines of a kind are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// The number of lines of a kind that are written in a window.
const LINES: u32 = 20;

/// The number of kinds that are counted separately. Above this number, all lines of one place in the code are one kind.
const MAX_KINDS: usize = 10_000;

/// How often to look for windows that have ended.
const LOOK: Duration = Duration::from_secs(1);

/// Decides which lines are written. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Limit(Arc<Mutex<HashMap<LineKind, LogWindow>>>);

/// Lines of one place in the code about one channel, one sink, or one sink of one channel.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LineKind {
    place: Identifier,
    channel: Option<String>,
    sink: Option<String>,
}

/// The lines of a kind in one window, which starts with the first line.
#[derive(Debug)]
struct LogWindow {
    ends: Instant,
    level: Level,
    message: String,
    written: u32,
    unwritten: u64,
}

impl Limit {
    /// When a window ends, logs how many lines were suppressed. Does not return.
    pub async fn watch(self) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = look.tick().await;
            self.report(|window| window.ends <= now);
        }
    }

    /// Logs how many lines were suppressed. Called before the program ends.
    pub fn end(&self) {
        self.report(|_| true);
    }

    /// Removes the windows that have ended, and logs how many of their lines were suppressed.
    fn report(&self, is_over: impl Fn(&LogWindow) -> bool) {
        // Log only after the lock has been released, because this layer also processes the lines that are logged here.
        let over: Vec<_> = lock(&self.0).extract_if(|_, window| is_over(window)).collect();
        over.into_iter()
            .filter(|(_, window)| window.unwritten > 0)
            .for_each(|(kind, window)| log_unwritten(kind, window));
    }

    fn admits(&self, line: Line, level: Level) -> bool {
        let Line { kind, message } = line;
        let (mut windows, now) = (lock(&self.0), Instant::now());
        let is_known = windows.len() < MAX_KINDS || windows.contains_key(&kind);
        let kind = if is_known { kind } else { LineKind { channel: None, sink: None, ..kind } };
        let first = || LogWindow { ends: now + WINDOW, level, message, written: 0, unwritten: 0 };
        let window = windows.entry(kind).or_insert_with(first);
        if now >= window.ends {
            // The window was not reported yet. Its suppressed lines are logged at the end of the new window.
            (window.ends, window.written) = (now + WINDOW, 0);
        }
        let is_written = window.written < LINES;
        if is_written {
            window.written += 1;
        } else {
            window.unwritten += 1;
        }
        is_written
    }
}

/// This is a layer for all lines and not a filter of one layer. If a filter accepts a callsite and then drops its
/// event, tracing-subscriber 0.3 also drops the next event.
impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == ALWAYS {
            return true;
        }
        // Format the fields before the lock is taken, because formatting runs code of the caller.
        let kind = LineKind { place: metadata.callsite(), channel: None, sink: None };
        let mut line = Line { kind, message: String::new() };
        event.record(&mut line);
        self.admits(line, *metadata.level())
    }
}

/// The parts of a line that decide its kind.
struct Line {
    kind: LineKind,
    message: String,
}

impl Line {
    fn take(&mut self, field: &Field, text: impl FnOnce() -> String) {
        match field.name() {
            "message" => self.message = text(),
            "channel" => self.kind.channel = Some(text()),
            "sink" => self.kind.sink = Some(text()),
            _ => {}
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, || value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, || format!("{value:?}"));
    }
}

/// Logs how many lines were suppressed, at the level of these lines.
fn log_unwritten(kind: LineKind, window: LogWindow) {
    let LogWindow { level, message: like, unwritten: lines, .. } = window;
    let (channel, sink, window_s) = (kind.channel.map(display), kind.sink.map(display), WINDOW.as_secs());
    macro_rules! log_at {
        ($level:expr) => {
            tracing::event!(target: ALWAYS, $level, channel, sink, lines, window_s, like, "more lines like this were not written")
        };
    }
    match level {
        Level::ERROR => log_at!(Level::ERROR),
        Level::WARN => log_at!(Level::WARN),
        _ => log_at!(Level::INFO),
    }
}
