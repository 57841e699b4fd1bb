//! A file sink that reads back after its file was cut anywhere: what was cut is written again, and nothing twice.
//!
//! Each byte is one step: deliver some events, or cut the file, restart the sink and let it resume.

#![no_main]

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use proof::event::{ChannelId, EventKey, Offset, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier};
use record::{ChannelRef, Lines, Message, Record, Shape};
use sink::{Access, Confirmed, Delivery, File, FileSettings, LaneRef, OpenFiles, Position, Recorded, Sink};
use telemetry::metrics::UpkeepFailures;
use uuid::Uuid;

fn message(channel: &ChannelRef, offset: i64) -> Message {
    let id = Uuid::from_u128(offset.unsigned_abs().into());
    let padding = "x".repeat(usize::try_from(offset % 7).unwrap() * 100);
    let json = format!(
        r#"{{"event_id":"{id}","headers":{{"type":"wallet.status","offset":{offset},"proofs":[]}},"payload":{{"p":"{padding}"}}}}"#
    );
    let raw = RawEvent::locate(json.into()).unwrap();
    let verifier = Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([2; 20]));
    let Verdict::Unsigned(notice) = verifier.verify(raw) else { panic!("a notice is unsigned") };
    Message::new(&Arc::new(Record::unsigned(channel, &notice, &mut Lines::default())), &Shape::default())
}

fn open(path: &Path) -> File {
    let settings = FileSettings { path: path.into(), access: Access::default(), rotation: None };
    File::new(settings, OpenFiles::default(), UpkeepFailures::default())
}

/// The offsets of the complete lines of the file, in order.
fn offsets(path: &Path) -> Vec<i64> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    lines
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            record["offset"].as_i64().unwrap()
        })
        .collect()
}

async fn run(data: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("events.jsonl");
    let channel = ChannelRef { name: "c".into(), id: ChannelId(Uuid::from_u128(1)) };
    let lane = LaneRef { channel: channel.clone(), sink: "file".into() };
    let mut sink = open(&path);
    // The last recorded event, and the lowest offset that must be in the file: an emptied file counts as rotated.
    let (mut through, mut lowest) = (0, 1);
    for step in data.iter().take(24) {
        let count = i64::from(step % 8) + 1;
        if step & 0x80 == 0 {
            let messages: Vec<_> = (through + 1..=through + count).map(|offset| message(&channel, offset)).collect();
            deliver(&sink, &lane, through, &messages).await;
            through += count;
            continue;
        }
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        let keep = length * u64::from(step & 0x7f) / 0x7f;
        if length != 0 {
            OpenOptions::new().write(true).open(&path).unwrap().set_len(keep).unwrap();
        }
        let remaining = fs::read(&path).unwrap_or_default();
        let has_line = remaining.contains(&b'\n');
        sink = open(&path);
        let last = EventKey { offset: Offset::new(through).unwrap(), id: None };
        let confirmed = (through != 0).then(|| Confirmed {
            position: Offset::new(through),
            last: Some(message(&channel, last.offset.get()).event_key()),
        });
        let recorded = Recorded {
            lane: lane.clone(),
            epoch: 1,
            through: Offset::new(through),
            pending: BTreeSet::new(),
            replayed: BTreeSet::new(),
            confirmed,
            late: Vec::new(),
        };
        let resumed = sink.resume(&recorded).await.unwrap();
        if !has_line {
            lowest = through + 1;
        }
        let Position::At(position) = resumed.position else { continue };
        let position = position.map_or(0, Offset::get);
        assert!(position <= through, "{position} of {through}");
        let missing: Vec<_> = (position + 1..=through).map(|offset| message(&channel, offset)).collect();
        let missing: Vec<_> =
            missing.into_iter().filter(|message| !resumed.held.contains(&message.event_key())).collect();
        if !missing.is_empty() {
            deliver(&sink, &lane, position, &missing).await;
        }
        assert_eq!(offsets(&path), (lowest..=through).collect::<Vec<_>>());
    }
}

async fn deliver(sink: &File, lane: &LaneRef, after: i64, messages: &[Message]) {
    let through = messages.last().unwrap().offset();
    let delivery = Delivery { lane, epoch: 1, after: Offset::new(after), through, messages };
    sink.deliver(&delivery).await.unwrap();
}

fuzz_target!(|data: &[u8]| {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(data));
});
