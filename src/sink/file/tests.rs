//! Tests the async interface: channels share a file, and a delivery whose future is dropped is still complete.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::*;
use crate::Confirmed;
use crate::tests::{channel, deliver, lane, lines, offset, records};
use record::Message;

impl FileSettings {
    /// The file at `path`, with default settings.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), access: Access::default(), rotation: None }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_share_a_file_and_each_keeps_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let sink = Arc::new(File::new(FileSettings::at(&path), OpenFiles::default(), UpkeepFailures::default()));

    let mut lanes = JoinSet::new();
    for number in 1..=4 {
        let sink = Arc::clone(&sink);
        lanes.spawn(async move {
            for start in 0..10 {
                deliver(&*sink, &channel(number), &records(&channel(number), start * 5..(start + 1) * 5))
                    .await
                    .unwrap();
            }
        });
    }
    lanes.join_all().await;

    let text = std::fs::read_to_string(path).unwrap();
    for number in 1..=4 {
        let name = format!("\"channel-{number}\"");
        let of_channel: String =
            text.lines().filter(|line| line.contains(&name)).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(of_channel.into_bytes(), lines(&records(&channel(number), 0..50)));
    }
}

#[tokio::test]
async fn a_dropped_delivery_is_found_at_the_next_resume() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let (ours, batch) = (channel(1), records(&channel(1), 1..100));
    let recorded = Recorded {
        lane: lane(&ours),
        epoch: 1,
        through: Some(offset(0)),
        pending: BTreeSet::new(),
        replayed: BTreeSet::new(),
        confirmed: None,
        late: Vec::new(),
    };
    let sink = File::new(FileSettings::at(&path), OpenFiles::default(), UpkeepFailures::default());

    {
        let delivery = std::pin::pin!(deliver(&sink, &ours, &batch));
        assert!(futures_util::poll!(delivery).is_pending());
    }
    sink.resume(&recorded).await.unwrap();
    deliver(&sink, &ours, &batch).await.unwrap();

    assert_eq!(std::fs::read(path).unwrap(), lines(&batch));
}

#[tokio::test]
async fn a_pending_event_that_the_file_has_can_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let (ours, late) = (channel(1), records(&channel(1), [4]));
    // At the resume, the lane settles an event below its cursor. Its next delivery is a replay. An event above the cursor is
    // offered with its batch, and must be skipped.
    for (through, written) in [(7, &[4, 4][..]), (3, &[4])] {
        std::fs::write(&path, lines(&late)).unwrap();
        let sink = File::new(FileSettings::at(&path), OpenFiles::default(), UpkeepFailures::default());
        let recorded = Recorded {
            lane: lane(&ours),
            epoch: 1,
            through: Some(offset(through)),
            pending: [late[0].event_key()].into(),
            replayed: BTreeSet::new(),
            confirmed: None,
            late: Vec::new(),
        };
        assert_eq!(sink.resume(&recorded).await.unwrap().held, [late[0].event_key()]);
        deliver(&sink, &ours, &late).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), lines(&records(&ours, written.iter().copied())), "{through}");
    }
}

#[tokio::test]
async fn a_refused_batch_is_entirely_undelivered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let sink = File::new(FileSettings::at(&path), OpenFiles::default(), UpkeepFailures::default());
    std::fs::create_dir(&path).unwrap();

    let refused = deliver(&sink, &channel(1), &records(&channel(1), 1..4)).await.unwrap_err();

    assert_eq!(refused.delivered, 0);
    assert!(matches!(refused.error, SinkError::Io { .. }), "{:?}", refused.error);
}

#[tokio::test]
async fn a_restored_file_reports_positions_before_it_accepts_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let (ours, batch) = (channel(1), records(&channel(1), 1..8));
    let sink = File::new(FileSettings::at(&path), OpenFiles::default(), UpkeepFailures::default());
    assert_eq!(sink.position(&lane(&ours)).await.unwrap(), Position::Untracked);
    deliver(&sink, &ours, &batch).await.unwrap();
    assert_eq!(sink.position(&lane(&ours)).await.unwrap(), Position::At(Some(offset(7))));
    std::fs::write(&path, lines(&batch[..3])).unwrap();

    let refused = deliver(&sink, &ours, &records(&ours, [8])).await.unwrap_err();
    assert!(matches!(refused, Undelivered { delivered: 0, error: SinkError::Displaced(_), .. }), "{refused:?}");
    let confirmed = Confirmed { position: Some(offset(7)), last: Some(batch[6].event_key()) };
    let recorded = Recorded {
        lane: lane(&ours),
        epoch: 1,
        through: Some(offset(7)),
        pending: BTreeSet::new(),
        replayed: BTreeSet::new(),
        confirmed: Some(confirmed),
        late: Vec::new(),
    };
    let resumed = sink.resume(&recorded).await.unwrap();
    assert_eq!(resumed, Resumed { position: Position::At(Some(offset(3))), ..Resumed::default() });
    deliver(&sink, &ours, &records(&ours, 4..9)).await.unwrap();
    assert_eq!(sink.resume(&recorded).await.unwrap().position, Position::At(Some(offset(7))));
    assert_eq!(std::fs::read(path).unwrap(), lines(&records(&ours, 1..9)));
}

#[tokio::test(start_paused = true)]
async fn a_file_restored_while_no_event_arrives_is_found_and_a_rotated_one_is_not() {
    const LONG: Duration = Duration::from_secs(60);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let (ours, batch) = (channel(1), records(&channel(1), 1..8));
    let sink = File::new(FileSettings::at(&path), OpenFiles::default(), UpkeepFailures::default());
    let recorded = |last: Option<&Message>| {
        let through = last.map(Message::offset);
        let confirmed = Some(Confirmed { position: through, last: last.map(Message::event_key) });
        Recorded {
            lane: lane(&ours),
            epoch: 1,
            through,
            pending: BTreeSet::new(),
            replayed: BTreeSet::new(),
            confirmed,
            late: Vec::new(),
        }
    };
    sink.resume(&recorded(None)).await.unwrap();
    let is_found = async || timeout(LONG, sink.displaced(&lane(&ours))).await.is_ok();
    assert!(!is_found().await);

    deliver(&sink, &ours, &batch[..5]).await.unwrap();
    std::fs::rename(&path, directory.path().join("moved")).unwrap();
    assert!(!is_found().await, "a file that was moved away is not lost");
    std::fs::write(&path, "").unwrap();
    deliver(&sink, &ours, &batch[5..]).await.unwrap();
    assert!(!is_found().await, "the sink continues in the new file");

    let beside = directory.path().join("beside");
    for restored in [&path, &beside] {
        std::fs::write(restored, lines(&batch[..3])).unwrap();
        std::fs::rename(restored, &path).unwrap();
        assert!(is_found().await, "{}", restored.display());
        assert_eq!(sink.resume(&recorded(batch.last())).await.unwrap().position, Position::At(Some(offset(3))));
        assert!(!is_found().await, "a change is found once");
        deliver(&sink, &ours, &batch[3..]).await.unwrap();
    }
}
