use std::hash::{BuildHasherDefault, DefaultHasher};

use bytes::Bytes;
use uuid::Uuid;

use super::*;
use crate::event::RawEvent;
use crate::verify::{Address, SignerSet, Verdict, Verifier};

const ALLOWED: Result<Option<Place>, Alarm> = Ok(None);

impl Index {
    /// Whether that may go on, and what is a replay of it.
    fn allow(&mut self, place: Place, content: Content, proof: Option<Print>) -> Result<Option<Place>, Alarm> {
        self.let_through(seen(place, content, proof)).map(|let_through| let_through.replayed_at)
    }
}

fn seen(place: Place, content: Content, proof: Option<Print>) -> Seen {
    let prints = BuildHasherDefault::<DefaultHasher>::new();
    Seen { place, at: prints.hash_one(place), content, proof: proof.map(|proof| prints.hash_one(proof)) }
}

fn at(channel: u128, offset: i64) -> Place {
    Place { channel: ChannelId(Uuid::from_u128(channel)), offset: Offset::new(offset).unwrap() }
}

fn signed(id: u64, text: u64) -> Content {
    Content { id, text: Text::signed(text) }
}

fn notice(id: u64, text: u64) -> Content {
    Content { id, text: Text::notice(text) }
}

fn proof(number: u8) -> Print {
    number.into()
}

#[test]
fn the_same_event_at_the_same_place_is_no_alarm_however_often() {
    let mut index = Index::of(10);
    for _ in 0..3 {
        assert_eq!(index.allow(at(1, 5), signed(5, 50), Some(proof(5))), ALLOWED);
        assert_eq!(index.allow(at(1, 6), notice(6, 60), None), ALLOWED);
    }
}

#[test]
fn a_proof_in_another_place_is_a_replay_and_leaves_no_trace() {
    let mut index = Index::of(10);
    assert_eq!(index.allow(at(1, 5), signed(5, 50), Some(proof(5))), ALLOWED);
    for (number, place) in [(6, at(1, 6)), (7, at(2, 5)), (8, at(2, 3))] {
        assert_eq!(index.allow(place, signed(6, 50), Some(proof(5))), Err(Alarm::Replayed(at(1, 5))));
        assert_eq!(index.allow(place, signed(7, 70), Some(proof(number))), ALLOWED, "what rightly stands there");
    }
}

#[test]
fn the_same_text_with_a_proof_of_its_own_is_no_replay() {
    let mut index = Index::of(10);
    for (offset, number) in [(5, 1), (6, 2), (7, 3)] {
        assert_eq!(index.allow(at(1, offset), signed(u64::from(number), 50), Some(proof(number))), ALLOWED);
    }
    assert_eq!(index.allow(at(1, 5), signed(1, 50), Some(proof(4))), ALLOWED, "proved anew");
    assert_eq!(index.allow(at(1, 8), signed(8, 50), Some(proof(4))), Err(Alarm::Replayed(at(1, 5))));
}

#[test]
fn the_lower_offset_of_a_channel_is_the_original_also_where_it_is_seen_later() {
    let mut index = Index::of(10);
    assert_eq!(index.allow(at(1, 9), signed(9, 50), Some(proof(5))), ALLOWED);
    let first = index.allow(at(1, 5), signed(5, 50), Some(proof(5)));
    assert_eq!(first, Ok(Some(at(1, 9))));
    assert_eq!(index.allow(at(1, 5), signed(5, 50), Some(proof(5))), ALLOWED);
    assert_eq!(index.allow(at(1, 9), signed(9, 50), Some(proof(5))), Err(Alarm::Replayed(at(1, 5))));
}

#[test]
fn other_content_at_the_same_place_is_a_contradiction() {
    for (first, second) in [
        (signed(5, 50), signed(5, 51)),
        (signed(5, 50), signed(6, 50)),
        (signed(5, 50), notice(5, 50)),
        (notice(5, 50), notice(5, 51)),
        (notice(5, 50), notice(6, 50)),
        (notice(5, 50), signed(6, 50)),
    ] {
        let mut index = Index::of(10);
        assert_eq!(index.allow(at(1, 5), first, None), ALLOWED);
        assert_eq!(index.allow(at(1, 5), second, Some(proof(2))), Err(Alarm::Contradiction(at(1, 5))));
        assert_eq!(index.allow(at(1, 5), first, None), ALLOWED, "the first one stays");
        assert_eq!(index.allow(at(2, 5), second, Some(proof(2))), ALLOWED, "another channel has its own");
    }
}

#[test]
fn a_notice_may_become_a_verified_event_of_the_same_id() {
    let mut index = Index::of(10);
    assert_eq!(index.allow(at(1, 5), notice(5, 1), None), ALLOWED);
    assert_eq!(index.allow(at(1, 5), signed(5, 2), Some(proof(5))), ALLOWED);
    assert_eq!(index.allow(at(1, 5), notice(5, 1), None), Err(Alarm::Contradiction(at(1, 5))));
}

#[test]
fn the_oldest_is_forgotten_and_nothing_grows() {
    let mut index = Index::of(3);
    for number in 0..50 {
        assert_eq!(index.allow(at(1, number.into()), signed(number.into(), 1), Some(proof(number))), ALLOWED);
    }
    assert_eq!((index.places.len(), index.proofs.len()), (3, 3));
    assert_eq!(index.allow(at(1, 60), signed(60, 1), Some(proof(47))), Err(Alarm::Replayed(at(1, 47))));
    assert_eq!(index.allow(at(1, 60), signed(60, 1), Some(proof(46))), ALLOWED, "forgotten");
}

#[test]
fn it_takes_no_more_memory_than_it_says() {
    const MIB: usize = 1024 * 1024;
    let index = Index::of(RECENT);
    let bytes = index.places.bytes() + index.proofs.bytes();
    assert!(bytes < 8 * MIB, "{bytes} bytes");
}

#[test]
fn a_notice_is_told_by_its_payload_in_any_order_and_to_the_last_digit() {
    let verifier = Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([2; 20]));
    let recent = RecentEvents::default();
    for (payload, same) in [
        (r#"{"status":"deployed","amount":100000000000000000000000000001}"#, true),
        (r#"{ "amount":100000000000000000000000000001, "status":"deployed" }"#, true),
        (r#"{"status":"deployed","amount":100000000000000000000000000002}"#, false),
        (r#"{"status":"deployed"}"#, false),
        (r#""lost""#, false),
    ] {
        let json = format!(r#"{{"headers":{{"type":"wallet.status","offset":5}},"payload":{payload}}}"#);
        let raw = RawEvent::locate(Bytes::from(json)).unwrap();
        let Verdict::Unsigned(notice) = verifier.judge(raw) else { panic!("a notice") };
        let channel = ChannelId(Uuid::from_u128(1));
        assert_eq!(recent.notice(channel, &notice).is_ok(), same, "{payload}");
    }
}

#[test]
fn what_was_let_through_before_is_no_news_and_a_notice_that_is_proved_is() {
    let mut index = Index::of(10);
    let mut is_news = |content| index.let_through(seen(at(1, 5), content, None)).unwrap().is_news;
    assert!(is_news(notice(5, 50)) && !is_news(notice(5, 50)));
    assert!(is_news(signed(5, 50)) && !is_news(signed(5, 50)));
}
