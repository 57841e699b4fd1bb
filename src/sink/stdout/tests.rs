//! Tests the guarantees for a reader of standard output.

use std::sync::{Arc, Mutex};

use super::*;
use crate::tests::{channel, deliver, lines, record, record_about, record_of_another, records};

/// A writer that accepts at most `room` bytes, and then fails with `kind` until it gets more room.
#[derive(Clone)]
struct Narrow(Arc<Mutex<NarrowState>>);

struct NarrowState {
    taken: Vec<u8>,
    room: usize,
    kind: ErrorKind,
    writes: usize,
}

impl Narrow {
    fn new(room: usize, kind: ErrorKind) -> Self {
        Self(Arc::new(Mutex::new(NarrowState { taken: Vec::new(), room, kind, writes: 0 })))
    }

    fn give(&self, room: usize) {
        self.0.lock().unwrap().room = room;
    }

    fn taken(&self) -> Vec<u8> {
        self.0.lock().unwrap().taken.clone()
    }
}

impl Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap();
        let fits = bytes.len().min(state.room);
        if fits == 0 {
            return Err(state.kind.into());
        }
        state.taken.extend_from_slice(&bytes[..fits]);
        state.room -= fits;
        state.writes += 1;
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_batch_is_one_write_of_whole_lines() {
    let out = Narrow::new(usize::MAX, ErrorKind::Other);
    let batch = records(&channel(1), 1..4);

    deliver(&Stdout::over(out.clone()), &channel(1), &batch).await.unwrap();

    assert_eq!(out.taken(), lines(&batch));
    assert_eq!(out.0.lock().unwrap().writes, 1);
}

#[tokio::test]
async fn a_closed_pipe_is_reported() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);

    let refused = deliver(&Stdout::over(writer), &channel(1), &records(&channel(1), [1])).await.unwrap_err();

    assert_eq!(refused.delivered, 0);
    assert!(matches!(refused.error, SinkError::Closed), "{:?}", refused.error);
}

#[tokio::test]
async fn a_batch_cut_by_a_closing_reader_is_undelivered() {
    let batch = records(&channel(1), 1..4);
    let out = Narrow::new(lines(&batch[..2]).len(), ErrorKind::BrokenPipe);

    let refused = deliver(&Stdout::over(out), &channel(1), &batch).await.unwrap_err();

    assert!(matches!(refused, Undelivered { delivered: 0, error: SinkError::Closed, .. }), "{refused:?}");
}

#[tokio::test]
async fn a_pipe_carries_every_channel_and_no_line_is_torn() {
    let (reader, writer) = io::pipe().unwrap();
    let reading = tokio::task::spawn_blocking(move || io::read_to_string(reader).unwrap());
    let sink = Arc::new(Stdout::over(writer));

    let mut lanes = tokio::task::JoinSet::new();
    for number in 1..=4 {
        let sink = Arc::clone(&sink);
        lanes.spawn(async move {
            for start in 0..20 {
                let batch = records(&channel(number), start * 50..(start + 1) * 50);
                deliver(&*sink, &channel(number), &batch).await.unwrap();
            }
        });
    }
    lanes.join_all().await;
    drop(sink);

    let text = reading.await.unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    for number in 1..=4 {
        let name = format!("\"channel-{number}\"");
        let of_channel: String =
            text.lines().filter(|line| line.contains(&name)).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(of_channel.into_bytes(), lines(&records(&channel(number), 0..1000)));
    }
}

#[test]
fn an_interrupted_write_continues_without_torn_or_repeated_lines() {
    let (ours, other) = (channel(1), channel(2));
    let batch = records(&ours, 1..4);
    let between = records(&other, [9]);
    for room in 0..lines(&batch).len() {
        let out = Narrow::new(room, ErrorKind::WouldBlock);
        let mut printer = Printer::new(out.clone(), |_| Err(ErrorKind::WouldBlock.into()));

        let refused = printer.print(ours.id, &batch).unwrap_err();
        assert_eq!(refused.delivered, out.taken().split(|&byte| byte == b'\n').count() - 1, "{room}");
        assert!(matches!(refused.error, SinkError::Io { .. }), "{:?}", refused.error);
        out.give(usize::MAX);
        printer.print(other.id, &between).unwrap();
        printer.print(ours.id, &batch[refused.delivered..]).unwrap();

        let text = String::from_utf8(out.taken()).unwrap();
        let of_ours: String =
            text.lines().filter(|line| line.contains("channel-1")).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(of_ours.into_bytes(), lines(&batch), "{room}");
        assert_eq!(text.len(), lines(batch.iter().chain(&between)).len(), "{room}");
        assert!(printer.finished.is_empty() && printer.torn.is_none(), "{room}");
    }
}

#[test]
fn a_finished_line_is_matched_by_event_id() {
    let ours = channel(1);
    let (one, other) = (record(&ours, 5), record_of_another(&ours, 5));
    let out = Narrow::new(9, ErrorKind::WouldBlock);
    let mut printer = Printer::new(out.clone(), |_| Err(ErrorKind::WouldBlock.into()));
    printer.print(ours.id, std::slice::from_ref(&one)).unwrap_err();
    out.give(usize::MAX);
    printer.print(ours.id, std::slice::from_ref(&other)).unwrap();
    printer.print(ours.id, std::slice::from_ref(&one)).unwrap();
    assert_eq!(out.taken(), lines([&one, &other]));
}

#[tokio::test]
async fn a_full_non_blocking_pipe_is_waited_for() {
    let (reader, writer) = io::pipe().unwrap();
    let writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    rustix::fs::fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    let batch = [record_about(&channel(1), 1, &"x".repeat(256 * 1024)), record(&channel(1), 2)];
    let sink = Stdout::writing_to(writer).unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        // The pipe is full before anything is read, so a write fails.
        while rustix::io::ioctl_fionread(&reader).unwrap() < 64 * 1024 {
            std::thread::yield_now();
        }
        io::read_to_string(reader).unwrap()
    });

    deliver(&sink, &channel(1), &batch).await.unwrap();

    drop(sink);
    assert_eq!(reading.await.unwrap().into_bytes(), lines(&batch));
}

#[tokio::test]
async fn standard_output_can_be_opened_twice() {
    assert!(Stdout::new().is_ok() && Stdout::new().is_ok());
}

#[test]
fn a_closed_descriptor_is_refused_but_dev_null_is_accepted() {
    let null = |read| fs::OpenOptions::new().read(read).write(true).open("/dev/null").unwrap();
    let Err(refused) = Stdout::writing_to(null(true)) else { panic!("/dev/null replaces a closed descriptor") };
    assert!(refused.needs_attention() && refused.to_string().contains("> /dev/null"), "{refused}");
    assert!(Stdout::writing_to(null(false)).is_ok());

    let file = tempfile::tempfile().unwrap();
    assert!(Stdout::writing_to(file).is_ok(), "a file may be open for reading and writing");
    let (_reader, writer) = io::pipe().unwrap();
    assert!(Stdout::writing_to(fs::File::from(std::os::fd::OwnedFd::from(writer))).is_ok());
}
