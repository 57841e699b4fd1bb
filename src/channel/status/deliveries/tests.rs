use std::time::Duration;

use super::*;
use record::testing::notice;
use record::{Message, Shape};

fn message(offset: i64, bytes: usize) -> Message {
    let payload = format!(r#"{{"status":"{}"}}"#, "x".repeat(bytes));
    let mut record = notice("wallet.status", &payload);
    record.offset = Offset::new(offset).unwrap();
    Message::new(&Arc::new(record), &Shape::default())
}

fn note(tail: &DeliveryTail, sink: &str, messages: &[Message]) {
    tail.note(&sink.into(), messages.iter().map(|message| (message, false)));
}

fn offsets(seen: &DeliveryPage) -> Vec<i64> {
    seen.deliveries.iter().map(|delivered| delivered.record.offset.get()).collect()
}

#[test]
fn events_are_kept_only_after_the_first_reader() {
    let tail = DeliveryTail::default();
    note(&tail, "file", &[message(1, 0)]);
    let from = tail.look(None, 100).next;
    note(&tail, "file", &[message(2, 0), message(3, 0)]);
    let seen = tail.look(Some(from), 100);
    assert_eq!((offsets(&seen), seen.missed), (vec![2, 3], 0));
    assert_eq!(offsets(&tail.look(Some(seen.next), 100)), [0; 0]);
}

#[test]
fn an_event_of_two_sinks_is_kept_once() {
    let tail = DeliveryTail::default();
    let from = tail.look(None, 100).next;
    note(&tail, "file", &[message(1, 0)]);
    note(&tail, "hook", &[message(1, 0), message(2, 0)]);
    let seen = tail.look(Some(from), 100);
    let first: Vec<_> = seen.deliveries.iter().map(|it| (&*it.sink, it.is_first)).collect();
    assert_eq!(first, [("file", true), ("hook", false), ("hook", true)]);
}

#[test]
fn the_buffer_is_bounded_and_missed_events_are_counted() {
    let tail = DeliveryTail::default();
    let from = tail.look(None, 100).next;
    for offset in 0..10 {
        note(&tail, "file", &[message(offset, MAX_BYTES / 4)]);
    }
    let seen = tail.look(Some(from), 100);
    assert_eq!((offsets(&seen), seen.missed), (vec![7, 8, 9], 7));
    let many: Vec<_> = (0..3_000).map(|offset| message(offset, 0)).collect();
    note(&tail, "file", &many);
    let seen = tail.look(Some(seen.next), usize::MAX);
    assert_eq!((seen.deliveries.len(), seen.missed), (MAX_EVENTS, 1_000));
    assert_eq!(lock(&tail.kept).records.len(), MAX_EVENTS);
}

#[test]
fn a_long_tail_is_read_in_parts() {
    let tail = DeliveryTail::default();
    let from = tail.look(None, 2).next;
    note(&tail, "file", &[message(1, 0), message(2, 0), message(3, 0)]);
    let first = tail.look(Some(from), 2);
    assert_eq!((offsets(&first), first.missed), (vec![1, 2], 0));
    let second = tail.look(Some(first.next), 2);
    assert_eq!((offsets(&second), second.missed), (vec![3], 0));
}

#[tokio::test]
async fn a_delivery_wakes_a_waiting_reader() {
    let tail = Arc::new(DeliveryTail::default());
    let from = tail.look(None, 1).next;
    let waiting = tokio::spawn({
        let tail = tail.clone();
        async move { tail.reaches(from, Duration::from_secs(60)).await }
    });
    note(&tail, "file", &[message(1, 0)]);
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
}

#[test]
fn the_newest_late_deliveries_are_kept() {
    let mut deliveries = LateDeliveries::default();
    let offset = |at: usize| Offset::new(at.try_into().unwrap()).unwrap();
    for at in 0..=KEPT {
        let delivery =
            LateDelivery { offset: offset(at), sink: "hook".into(), at: Timestamp::UNIX_EPOCH, is_asked_for: true };
        deliveries.note(delivery);
    }
    assert_eq!(deliveries.0.len(), KEPT);
    assert_eq!(deliveries.of(offset(0)).count(), 0);
    assert_eq!(deliveries.of(offset(KEPT)).count(), 1);
}
