//! Writes events to standard output, one line per event.
//!
//! # Invariants
//!
//! * **Whole lines.** Batches are written one after the other, each as one block. If a write failed in the middle of a
//!   line, the rest of the line is written before anything else.
//! * **Once.** If a write fails in the middle of a batch (a full disk, a pipe that would block), the bytes that were
//!   already written are not written again.
//! * **A non-blocking output is waited for.** Another program can make the shared pipe or terminal non-blocking. If it is full,
//!   the writing thread waits until it is writable, as it would in a blocking write.
//! * **If the reader closes the pipe, the whole current batch counts as unread,** because the sink cannot know how much of
//!   this batch was still in the pipe. The pipe may also have contained the end of the previous batch, at most 64 KiB.
//! * **A closed descriptor is not accepted as output.** If a standard descriptor is closed at the start, the Rust runtime
//!   opens /dev/null in its place for reading and writing, and every event would count as delivered. Programs that run a
//!   daemon without output also open /dev/null for reading and writing (`start-stop-daemon --background`,
//!   `subprocess.DEVNULL`). A shell (`> /dev/null`) and systemd (`StandardOutput=null`) open /dev/null for writing only.
//!   This is accepted: the operator discards events on purpose.
//!
//! # Cancellation
//!
//! A delivery that has started writes its whole batch, even if its future is dropped. If a reader stops reading without
//! closing its end, the writing thread blocks: the shutdown of the runtime must not wait for this thread.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use async_trait::async_trait;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use tokio::sync::Mutex;

use super::{Delivery, Sink, SinkError, Tested, Undelivered, blocking};
use proof::event::{ChannelId, EventKey};
use record::Message;

/// Delivers to standard output, or to any other writer that does not buffer.
pub struct Stdout<W = fs::File> {
    printer: Arc<Mutex<Printer<W>>>,
}

impl Stdout {
    /// The process's standard output, without a buffer in between.
    ///
    /// # Errors
    /// If standard output was closed when the process started, or if the system cannot duplicate its descriptor.
    pub fn new() -> Result<Self, SinkError> {
        let out = io::stdout().as_fd().try_clone_to_owned().map_err(io_error)?;
        Self::writing_to(out.into())
    }

    fn writing_to(out: fs::File) -> Result<Self, SinkError> {
        if is_substitute(&out).map_err(io_error)? {
            return Err(SinkError::unusable(
                "standard output was closed at the start, or is /dev/null opened for reading and writing, so every event would \
                 be lost: redirect it to a program or a file, or, to discard events on purpose, redirect it with \
                 `> /dev/null` (systemd: StandardOutput=null)"
                    .to_owned(),
            ));
        }
        Ok(Self::with(out, until_writable))
    }
}

/// Waits until the output is writable, or its reader has closed it. A signal can end the wait early.
fn until_writable(out: &fs::File) -> io::Result<()> {
    Ok(poll(&mut [PollFd::new(out, PollFlags::OUT)], None).map(drop)?)
}

/// Whether `out` is the /dev/null that replaces a closed descriptor. An operator who discards events opens /dev/null for
/// writing only.
fn is_substitute(out: &fs::File) -> io::Result<bool> {
    let (metadata, null) = (out.metadata()?, fs::metadata("/dev/null"));
    let is_null = metadata.file_type().is_char_device() && null.is_ok_and(|null| null.rdev() == metadata.rdev());
    Ok(is_null && fcntl_getfl(out)?.intersection(OFlags::RWMODE) == OFlags::RDWR)
}

impl<W: Write + Send + 'static> Stdout<W> {
    /// Delivers to `out`. If a write to `out` would block, the delivery fails.
    pub fn over(out: W) -> Self {
        Self::with(out, |_| Err(ErrorKind::WouldBlock.into()))
    }

    fn with(out: W, until_writable: fn(&W) -> io::Result<()>) -> Self {
        Self { printer: Arc::new(Mutex::new(Printer::new(out, until_writable))) }
    }
}

#[async_trait]
impl<W: Write + Send + 'static> Sink for Stdout<W> {
    async fn probe(&self) -> Result<String, SinkError> {
        Ok("it is open".to_owned())
    }

    async fn test(&self, sample: &Delivery<'_>) -> Result<Tested, SinkError> {
        self.deliver(sample).await.map_err(|undelivered| undelivered.error)?;
        Ok(Tested::Delivered("the test event is above, in the standard output of this command".to_owned()))
    }

    async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
        let (channel, batch) = (delivery.lane.channel.id, delivery.messages.to_vec());
        let mut printer = Arc::clone(&self.printer).lock_owned().await;
        blocking(move || printer.print(channel, &batch)).await
    }
}

/// A channel's event. Two events may have the same offset.
type ChannelEvent = (ChannelId, EventKey);

/// Writes lines, and remembers where a write was interrupted.
struct Printer<W> {
    out: W,
    /// Called if a write would block.
    until_writable: fn(&W) -> io::Result<()>,
    /// The event whose line was only partly written, and the rest of this line.
    torn: Option<(ChannelEvent, Vec<u8>)>,
    /// Events whose lines were torn and have since been finished. These events will be offered again, and are then skipped.
    finished: HashSet<ChannelEvent>,
}

impl<W: Write> Printer<W> {
    fn new(out: W, until_writable: fn(&W) -> io::Result<()>) -> Self {
        Self { out, until_writable, torn: None, finished: HashSet::new() }
    }

    fn print(&mut self, channel: ChannelId, batch: &[Message]) -> Result<(), Undelivered> {
        self.finish_torn().map_err(|error| Undelivered::after(0, io_error(error)))?;
        let length = batch.iter().map(|message| message.body().len() + 1).sum();
        let (mut lines, mut ends) = (Vec::with_capacity(length), Vec::with_capacity(batch.len()));
        for message in batch {
            if !self.finished.contains(&(channel, message.event_key())) {
                lines.extend_from_slice(message.body());
                lines.push(b'\n');
            }
            ends.push(lines.len());
        }
        let (written, result) = self.write_counted(&lines);

        let delivered = ends.partition_point(|&end| end <= written);
        let line_start = delivered.checked_sub(1).map_or(0, |last| ends[last]);
        if written > line_start {
            self.torn = Some(((channel, batch[delivered].event_key()), lines[written..ends[delivered]].to_vec()));
        }
        for message in &batch[..delivered] {
            self.finished.remove(&(channel, message.event_key()));
        }
        result.map_err(|error| Undelivered::after(if is_closed(&error) { 0 } else { delivered }, io_error(error)))?;
        self.out.flush().map_err(|error| Undelivered::after(0, io_error(error)))
    }

    fn finish_torn(&mut self) -> io::Result<()> {
        let Some((event, mut rest)) = self.torn.take() else { return Ok(()) };
        let (written, result) = self.write_counted(&rest);
        rest.drain(..written);
        if rest.is_empty() {
            self.finished.insert(event);
        } else {
            self.torn = Some((event, rest));
        }
        result
    }

    /// Like `write_all`, but also returns the number of bytes that were written.
    fn write_counted(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        while written < bytes.len() {
            let more = match self.out.write(&bytes[written..]) {
                Ok(0) => Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => (self.until_writable)(&self.out).map(|()| 0),
                more => more,
            };
            match more {
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (written, Err(error)),
            }
        }
        (written, Ok(()))
    }
}

fn io_error(source: io::Error) -> SinkError {
    if is_closed(&source) {
        return SinkError::Closed;
    }
    SinkError::io("writing to standard output", source)
}

fn is_closed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

#[cfg(test)]
mod tests;
