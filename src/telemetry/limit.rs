//! The same is not said a thousand times: of each kind of line so many a minute, and how many more there were.
//!
//! What fails once is said once by whoever sees it. This is for what flaps: a sink that takes turns between accepting and
//! refusing, a service that fails every second request, thousands of forged events.
//!
//! # Invariants
//!
//! * **Nobody is silenced by somebody else.** Lines are counted by where they come from in the code and by the channel and
//!   the sink that they are about.
//! * **What is left out is said.** As its window ends, one line tells how many there were, and when the program ends.
//! * **What happens once is always written:** the lines of target [`ALWAYS`], by which an operator knows what the daemon
//!   does and what was done to it. So are `debug` and `trace`, which are asked for to see everything.
//! * **Bounded.** By the number of kinds, see [`ledger`].
//!
//! # Cancellation
//!
//! [`Limit::watch`] may be dropped at any point. What is left to say is said by [`Limit::end`].

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::field::{Field, Visit, display};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

mod ledger;
#[cfg(test)]
mod tests;

use ledger::{Kind, Ledger, Unwritten, WINDOW};

/// The target of lines that are always written.
pub const ALWAYS: &str = "channeld::always";

/// How often it is looked whether a window is over.
const LOOK: Duration = Duration::from_secs(1);

/// Decides which lines are written. Clones decide together.
#[derive(Clone, Debug, Default)]
pub struct Limit {
    ledger: Arc<Mutex<Ledger>>,
}

impl Limit {
    /// Says, as each window ends, what was not written in it. Does not end.
    pub async fn watch(self) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = look.tick().await;
            let ended = self.lock().ended(now);
            ended.into_iter().for_each(tell);
        }
    }

    /// Says what was not written until now: nobody will later.
    pub fn end(&self) {
        let ended = self.lock().end();
        ended.into_iter().for_each(tell);
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of the program, not of one way of writing lines: a filter of one layer that lets an event's place in the code through,
/// and not the event, has the next event dropped too (tracing-subscriber 0.3).
impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == ALWAYS {
            return true;
        }
        // Before the lock: a field's text is made by whoever logs it.
        let mut line = Line::default();
        event.record(&mut line);
        let kind = Kind { place: metadata.callsite(), channel: line.channel, sink: line.sink };
        self.lock().admits(kind, *metadata.level(), line.message, Instant::now())
    }
}

/// What of a line counts.
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

/// Says what was not written, as loud as it would have been said.
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
