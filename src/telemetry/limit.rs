//! Limits repeated log lines: twenty of each kind a minute, and then how many more there were.
//!
//! For trouble that flaps: a sink that accepts and refuses in turn, a service that fails every second request, thousands of
//! forged events.
//!
//! # Invariants
//!
//! * **Kinds are independent.** Lines are counted by their place in the code, and by the channel and sink that they name.
//! * **The number of lines left out is logged,** at the end of each window and of the program.
//! * **Lines of target [`ALWAYS`] are always written:** the daemon's life and what operators did. So are `debug` and
//!   `trace` lines: they are switched on to see everything.
//! * **Bounded** by `windows::MAX_KINDS`.
//!
//! # Cancellation
//!
//! [`Limit::watch`] may be dropped at any point. [`Limit::end`] logs what is left.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::field::{Field, Visit, display};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

#[cfg(test)]
mod tests;
mod windows;

use windows::{Kind, Unwritten, WINDOW, Windows};

/// The target of lines that are always written.
pub const ALWAYS: &str = "channeld::always";

/// Between two looks for windows that are over.
const LOOK: Duration = Duration::from_secs(1);

/// Decides which lines are written. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Limit {
    windows: Arc<Mutex<Windows>>,
}

impl Limit {
    /// Logs, as each window ends, how many lines were left out. Does not end.
    pub async fn watch(self) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = look.tick().await;
            let ended = self.lock().ended(now);
            ended.into_iter().for_each(tell);
        }
    }

    /// Logs how many lines were left out until now, before the program ends.
    pub fn end(&self) {
        let ended = self.lock().end();
        ended.into_iter().for_each(tell);
    }

    fn lock(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A layer for all lines, not a filter of one layer: a filter that lets a callsite through and drops its event makes
/// tracing-subscriber 0.3 drop the next event too.
impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == ALWAYS {
            return true;
        }
        // Before the lock: formatting a field runs code of the caller.
        let mut line = Line::default();
        event.record(&mut line);
        let kind = Kind { place: metadata.callsite(), channel: line.channel, sink: line.sink };
        self.lock().admits(kind, *metadata.level(), line.message, Instant::now())
    }
}

/// The parts of a line that decide its kind.
#[derive(Default)]
struct Line {
    message: String,
    channel: Option<String>,
    sink: Option<String>,
}

impl Line {
    fn take(&mut self, field: &Field, text: impl FnOnce() -> String) {
        match field.name() {
            "message" => self.message = text(),
            "channel" => self.channel = Some(text()),
            "sink" => self.sink = Some(text()),
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

/// Logs how many lines were left out, at their level.
fn tell(unwritten: Unwritten) {
    macro_rules! tell_at {
        ($level:expr) => {{
            let Unwritten { like, channel, sink, lines, .. } = unwritten;
            let (channel, sink, window_s) = (channel.map(display), sink.map(display), WINDOW.as_secs());
            tracing::event!(target: ALWAYS, $level, channel, sink, lines, window_s, like, "more lines like this were not written");
        }};
    }
    match unwritten.level {
        Level::ERROR => tell_at!(Level::ERROR),
        Level::WARN => tell_at!(Level::WARN),
        _ => tell_at!(Level::INFO),
    }
}
