//! How far a long command has got: a bar on standard error, where that is a terminal, and nothing elsewhere.
//!
//! # Invariants
//!
//! * **Never among the results.** The bar is taken away before anything else is written, and at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::event_line::{shortened, width_of};
use channel::{Progress, rate, span};

/// A command that takes no longer shows no bar.
const AFTER: Duration = Duration::from_millis(500);

/// Between two pictures.
const BETWEEN: Duration = Duration::from_millis(200);

/// Columns of the bar.
const COLUMNS: usize = 22;

/// A share is told in so many parts.
const PARTS: f64 = 10_000.0;

/// To the first column, and nothing from there on.
const CLEAR: &str = "\r\x1b[K";

/// The bar of one command.
pub(super) struct Bar {
    is_wanted: bool,
    began: Instant,
    drawn: Option<Instant>,
    is_there: bool,
}

impl Bar {
    /// Begins now.
    pub(super) fn begin() -> Self {
        Self { is_wanted: io::stderr().is_terminal(), began: Instant::now(), drawn: None, is_there: false }
    }

    /// Says that `done` of `of` are done.
    pub(super) fn tell(&mut self, done: u64, of: u64, what: &str) {
        let progress = Progress::at(done, of, self.per_second(done));
        self.draw(&format!("{} {:>3.0} %  {what}{progress}", progress.bar(COLUMNS), progress.share() * 100.0));
    }

    /// Says that a share, from 0 to 1, is done, where its parts are not counted; `count` events were found.
    pub(super) fn tell_share(&mut self, share: f64, count: u64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10,000")]
        let (done, of) = ((share.clamp(0.0, 1.0) * PARTS) as u64, PARTS as u64);
        let Progress { seconds_left, .. } = Progress::at(done, of, self.per_second(done));
        let progress = Progress::at(done, of, None);
        let found = format!("{} found", channel::grouped(count));
        let speed = self.per_second(count).map_or_else(String::new, |per_second| format!(", {}", rate(per_second)));
        let left = seconds_left.map_or_else(String::new, |seconds| format!(", about {} left", span(seconds)));
        let percent = progress.share() * 100.0;
        self.draw(&format!("{} {percent:>3.0} %  {found}{speed}{left}", progress.bar(COLUMNS)));
    }

    /// Takes it away, until there is more to say.
    pub(super) fn hide(&mut self) {
        if std::mem::take(&mut self.is_there) {
            // A terminal that has gone misses nothing.
            let _ = io::stderr().write_all(CLEAR.as_bytes());
            self.drawn = None;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    fn per_second(&self, done: u64) -> Option<f64> {
        let seconds = self.began.elapsed().as_secs_f64();
        (seconds >= AFTER.as_secs_f64()).then(|| done as f64 / seconds)
    }

    fn draw(&mut self, line: &str) {
        let is_due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= BETWEEN);
        if !self.is_wanted || !is_due || self.began.elapsed() < AFTER {
            return;
        }
        let columns = width_of(&io::stderr()).unwrap_or(80);
        // One column less: in the last one, some terminals begin a new line.
        let _ = write!(io::stderr(), "{CLEAR}{}", shortened(line, columns.saturating_sub(1)));
        (self.drawn, self.is_there) = (Some(Instant::now()), true);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.hide();
    }
}
