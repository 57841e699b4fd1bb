//! Passes log lines to a thread that writes them to standard error.
//!
//! Standard error can be a pipe whose reader has stopped. A write to the pipe then blocks. Without a queue, each task that logs
//! would block too, and in the end the whole process.
//!
//! # Invariants
//!
//! * **Logging never waits.** If the queue is full, the line is dropped and counted.
//! * **Lost lines are reported:** by the metric `channeld_log_lines_lost_total`, by the status, and by a line as soon as lines are
//!   written again. Before a line is lost, [`LogQueue::stall`] shows that standard error accepts none.
//! * **Lines keep their order,** because one thread writes them.
//!
//! # Cancellation
//!
//! [`LogQueue::watch`] may be dropped at any point.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

use crate::limit::ALWAYS;
use crate::metrics;

/// The number of lines that wait to be written. Most lines have less than 500 bytes.
const LINES: usize = 4_096;

/// How often the lost lines are checked.
const LOOK: Duration = Duration::from_secs(1);

/// A longer wait for standard error is a stall. Restarting the journal takes less time.
const MOMENT: Duration = Duration::from_secs(3);

/// How often the end of the program checks whether the queue is empty.
const LOOK_AT_THE_END: Duration = Duration::from_millis(5);

/// Accepts log lines. Clones share one queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    lines: SyncSender<Vec<u8>>,
    /// Lines that were accepted and are not written yet.
    waiting: Arc<AtomicU64>,
    writing: Arc<Mutex<Option<Instant>>>,
    /// Lines that were dropped because the queue was full. Must be [added](metrics::Metrics::show) to the metrics.
    pub lost: IntCounter,
}

/// Standard error does not accept the next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStall {
    /// How long it has not accepted the line.
    pub lasts: Duration,
    /// The number of lines that wait, including this one.
    pub lines: u64,
}

impl LogQueue {
    /// Starts the thread, which ends with the process.
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start(to: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, queued) = sync_channel(LINES);
        let waiting = Arc::new(AtomicU64::new(0));
        let lost = metrics::counter("channeld_log_lines_lost_total");
        let writing = Arc::<Mutex<_>>::default();
        let queue = Self { lines, waiting: waiting.clone(), writing: writing.clone(), lost: lost.clone() };
        let write = move || write_all(&queued, to, &waiting, &writing, &lost);
        thread::Builder::new().name("log".to_owned()).spawn(write)?;
        Ok(queue)
    }

    /// Returns whether standard error has not accepted the next line for longer than a moment.
    pub fn stall(&self) -> Option<LogStall> {
        let since = *self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let lasts = since.map(|since| since.elapsed()).filter(|lasts| *lasts >= MOMENT)?;
        Some(LogStall { lasts, lines: self.waiting.load(Ordering::Relaxed) })
    }

    /// Logs how many lines were lost, as soon as no line waits any more. Does not return.
    pub async fn watch(self) {
        let (mut look, mut reported) = (tokio::time::interval(LOOK), 0);
        loop {
            look.tick().await;
            let lost = self.lost.get();
            if lost > reported && self.waiting.load(Ordering::Relaxed) == 0 {
                let lines = lost - reported;
                warn!(target: ALWAYS, lines, "log lines were lost, because standard error did not accept them in time");
                reported = lost;
            }
        }
    }

    /// Waits until all lines are written, but at most for `within`. Called before the program ends.
    pub fn flush(&self, within: Duration) {
        let until = Instant::now() + within;
        while self.waiting.load(Ordering::Acquire) > 0 && Instant::now() < until {
            thread::sleep(LOOK_AT_THE_END);
        }
    }
}

/// Writes each line at once. A line that cannot be written, for example because standard error is a file on a full disk, is lost.
/// It is reported when later lines can be written.
fn write_all(
    queued: &Receiver<Vec<u8>>,
    mut to: impl Write,
    waiting: &AtomicU64,
    writing: &Mutex<Option<Instant>>,
    lost: &IntCounter,
) {
    let note = |since| *writing.lock().unwrap_or_else(PoisonError::into_inner) = since;
    while let Ok(line) = queued.recv() {
        note(Some(Instant::now()));
        if to.write_all(&line).is_err() {
            lost.inc();
        }
        note(None);
        waiting.fetch_sub(1, Ordering::Release);
    }
}

/// The subscriber passes each line with one call.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.lines.try_send(line.to_vec()).is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.lost.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn lines_that_a_full_disk_does_not_accept_are_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let queue = LogQueue::start(Full).unwrap();
        queue.clone().write_all(b"line\n").unwrap();
        queue.flush(Duration::from_secs(10));
        assert_eq!(queue.lost.get(), 1);
    }

    #[test]
    fn lines_that_a_blocked_reader_does_not_accept_are_dropped_and_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = LogQueue::start(writer).unwrap();
        // More than a pipe (64 KiB) and the queue hold together.
        let line = [b'x'; 64];
        for _ in 0..2 * LINES {
            queue.clone().write_all(&line).unwrap();
        }
        let lost = queue.lost.get();
        assert!(lost > 0, "nothing blocked");
        let deadline = Instant::now() + Duration::from_secs(60);
        let stall = loop {
            if let Some(stall) = queue.stall() {
                break stall;
            }
            assert!(Instant::now() < deadline, "the stall is not reported");
            thread::sleep(LOOK_AT_THE_END);
        };
        // The pipe accepted some lines when the queue was full already.
        assert!(stall.lasts >= MOMENT && stall.lines > 0, "{stall:?}");
        let kept = 2 * LINES - usize::try_from(lost).unwrap();
        let mut read = vec![0; kept * line.len()];
        reader.read_exact(&mut read).unwrap();
        queue.flush(Duration::from_secs(10));
        assert_eq!((queue.waiting.load(Ordering::Acquire), queue.stall()), (0, None));
    }
}
