//! Draws a progress bar for a long command on standard error, if standard error is a terminal. The bar is removed before the
//! command writes its output, and at the end.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::terminal::{shortened, width_of};
use channel::{Progress, grouped, rate, span};
use proof::event::Offset;

/// A command that ends within this time shows no bar.
const AFTER: Duration = Duration::from_millis(500);

/// The minimum time between two updates of the bar.
const BETWEEN: Duration = Duration::from_millis(200);

const COLUMNS: usize = 22;

/// A share from 0 to 1 is converted to a whole number of parts. The share 1 has this number of parts.
const PARTS: f64 = 10_000.0;

/// Moves to the first column and clears the line.
const CLEAR: &str = "\r\x1b[K";

pub(crate) struct ProgressBar {
    is_wanted: bool,
    began: Instant,
    /// When the bar was last drawn, if it is visible.
    drawn: Option<Instant>,
}

impl ProgressBar {
    /// Starts to measure time. The bar is drawn later.
    pub(crate) fn begin() -> Self {
        Self { is_wanted: io::stderr().is_terminal(), began: Instant::now(), drawn: None }
    }

    /// Reports that `done` of `of` items are done.
    pub(crate) fn tell(&mut self, done: u64, of: u64, what: &str) {
        let progress = Progress::at(done, of, self.per_second(done));
        self.draw(&format!("{} {:>3.0} %  {what}{progress}", progress.bar(COLUMNS), progress.share() * 100.0));
    }

    /// Reports the progress in the range of offsets from `from` to `to`: the offsets up to and including `at` are done.
    pub(crate) fn tell_offset(&mut self, at: Offset, from: Offset, to: Offset, what: &str) {
        let distance = |to: Offset| u64::try_from(to.get() - from.get()).unwrap_or_default() + 1;
        self.tell(distance(at), distance(to), what);
    }

    /// Reports the share that is done, from 0 to 1, for a search whose total is not known. `count` is the number of events
    /// found.
    pub(crate) fn tell_share(&mut self, share: f64, count: u64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10,000")]
        let (done, of) = ((share.clamp(0.0, 1.0) * PARTS) as u64, PARTS as u64);
        let progress = Progress::at(done, of, self.per_second(done));
        let (bar, percent, found) = (progress.bar(COLUMNS), progress.share() * 100.0, grouped(count));
        let speed = self.per_second(count).map_or_else(String::new, |per_second| format!(", {}", rate(per_second)));
        let left = progress.seconds_left.map_or_else(String::new, |left| format!(", about {} left", span(left)));
        self.draw(&format!("{bar} {percent:>3.0} %  {found} found{speed}{left}"));
    }

    /// Removes the bar until the next report.
    pub(crate) fn hide(&mut self) {
        if self.drawn.take().is_some() {
            // The error is ignored: if standard error is closed, no bar is visible.
            let _ = io::stderr().write_all(CLEAR.as_bytes());
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
        self.drawn = Some(Instant::now());
    }
}

impl Drop for ProgressBar {
    fn drop(&mut self) {
        self.hide();
    }
}
