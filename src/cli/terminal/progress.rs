//! Shows the progress of a long command as a bar on standard error. Shows nothing if standard error is not a terminal.
//!
//! # Invariants
//!
//! * **Never among the results.** The bar is removed before anything else is written, and at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::terminal::{shortened, width_of};
use channel::{Progress, rate, span};

/// A command that ends within this time shows no bar.
const AFTER: Duration = Duration::from_millis(500);

/// The minimum time between two updates of the bar.
const BETWEEN: Duration = Duration::from_millis(200);

/// Columns of the bar.
const COLUMNS: usize = 22;

/// A share is converted to a count of this many parts.
const PARTS: f64 = 10_000.0;

/// Moves to the first column and clears the line.
const CLEAR: &str = "\r\x1b[K";

/// The bar of one command.
pub(crate) struct Bar {
    is_wanted: bool,
    began: Instant,
    drawn: Option<Instant>,
    is_there: bool,
}

impl Bar {
    /// Starts to measure time. The bar is drawn later.
    pub(crate) fn begin() -> Self {
        Self { is_wanted: io::stderr().is_terminal(), began: Instant::now(), drawn: None, is_there: false }
    }

    /// Reports that `done` of `of` are done.
    pub(crate) fn tell(&mut self, done: u64, of: u64, what: &str) {
        let progress = Progress::at(done, of, self.per_second(done));
        self.draw(&format!("{} {:>3.0} %  {what}{progress}", progress.bar(COLUMNS), progress.share() * 100.0));
    }

    /// Reports that a share, from 0 to 1, is done, if the total is not known. `count` is the number of events found.
    pub(crate) fn tell_share(&mut self, share: f64, count: u64) {
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

    /// Removes the bar until the next report.
    pub(crate) fn hide(&mut self) {
        if std::mem::take(&mut self.is_there) {
            // The error is ignored: a closed terminal shows no bar.
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
        // One column less, because some terminals begin a new line in the last column.
        let _ = write!(io::stderr(), "{CLEAR}{}", shortened(line, columns.saturating_sub(1)));
        (self.drawn, self.is_there) = (Some(Instant::now()), true);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.hide();
    }
}
