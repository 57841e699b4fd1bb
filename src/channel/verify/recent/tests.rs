use bytes::Bytes;
use uuid::Uuid;

use super::*;
use proof::event::{EventId, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier};

/// An index with the number of events that it remembers per channel.
struct Limited(EventIndex, usize);

const ADMITTED: Result<Option<EventLocation>, Alarm> = Ok(None);

impl Limited {
    fn of(capacity: usize) -> Self {
        Self(EventIndex::default(), capacity)
    }

    /// Returns the location of the known duplicate of an admitted event, or the alarm.
    fn admit(
        &mut self,
        location: EventLocation,
        content: ContentHash,
        proof: Option<ProofKey>,
    ) -> Result<Option<EventLocation>, Alarm> {
        self.0.admit(location, content, proof.map(ShownProof::new), self.1).map(|admitted| admitted.duplicate_at)
    }

    fn replay(&mut self, location: EventLocation, content: ContentHash, print: ProofKey) -> Result<Admitted, Alarm> {
        self.0.admit(location, content, Some(ShownProof { print, replayed: true }), self.1)
    }
}

fn at(channel: u128, offset: i64) -> EventLocation {
    EventLocation { channel_id: ChannelId(Uuid::from_u128(channel)), offset: Offset::new(offset).unwrap() }
}

fn signed(id: u32, text: u32) -> ContentHash {
    ContentHash { id, text: text << 1 | 1 }
}

fn notice(id: u32, text: u32) -> ContentHash {
    ContentHash { id, text: text << 1 }
}

fn proof(number: u8) -> ProofKey {
    ProofKey::from_be_bytes([number; 8])
}

#[test]
fn the_same_event_at_the_same_offset_is_no_duplicate() {
    let mut index = Limited::of(10);
    for _ in 0..3 {
        assert_eq!(index.admit(at(1, 5), signed(5, 50), Some(proof(5))), ADMITTED);
        assert_eq!(index.admit(at(1, 6), notice(6, 60), None), ADMITTED);
    }
}

#[test]
fn a_proof_at_another_offset_is_a_duplicate_and_not_remembered() {
    let mut index = Limited::of(10);
    assert_eq!(index.admit(at(1, 5), signed(5, 50), Some(proof(5))), ADMITTED);
    for (number, location) in [(6, at(1, 6)), (7, at(2, 5)), (8, at(2, 3))] {
        assert_eq!(index.admit(location, signed(6, 50), Some(proof(5))), Err(Alarm::DuplicateProof(at(1, 5))));
        assert_eq!(
            index.admit(location, signed(7, 70), Some(proof(number))),
            ADMITTED,
            "the genuine event at that location"
        );
    }
}

#[test]
fn the_same_content_with_its_own_proof_is_no_duplicate() {
    let mut index = Limited::of(10);
    for (offset, number) in [(5, 1), (6, 2), (7, 3)] {
        assert_eq!(index.admit(at(1, offset), signed(u32::from(number), 50), Some(proof(number))), ADMITTED);
    }
    assert_eq!(index.admit(at(1, 5), signed(1, 50), Some(proof(4))), ADMITTED, "proved anew");
    assert_eq!(index.admit(at(1, 8), signed(8, 50), Some(proof(4))), Err(Alarm::DuplicateProof(at(1, 5))));
}

#[test]
fn the_lower_offset_is_the_original_even_if_seen_later() {
    let mut index = Limited::of(10);
    assert_eq!(index.admit(at(1, 9), signed(9, 50), Some(proof(5))), ADMITTED);
    let first = index.admit(at(1, 5), signed(5, 50), Some(proof(5)));
    assert_eq!(first, Ok(Some(at(1, 9))));
    assert_eq!(index.admit(at(1, 5), signed(5, 50), Some(proof(5))), ADMITTED);
    assert_eq!(index.admit(at(1, 9), signed(9, 50), Some(proof(5))), Err(Alarm::DuplicateProof(at(1, 5))));
}

#[test]
fn other_content_at_the_same_offset_is_a_contradiction() {
    for (first, second) in [
        (signed(5, 50), signed(5, 51)),
        (signed(5, 50), signed(6, 50)),
        (signed(5, 50), notice(5, 50)),
        (notice(5, 50), notice(5, 51)),
        (notice(5, 50), notice(6, 50)),
        (notice(5, 50), signed(6, 50)),
    ] {
        let mut index = Limited::of(10);
        assert_eq!(index.admit(at(1, 5), first, None), ADMITTED);
        assert_eq!(index.admit(at(1, 5), second, Some(proof(2))), Err(Alarm::Contradiction(at(1, 5))));
        assert_eq!(index.admit(at(1, 5), first, None), ADMITTED, "the first one stays");
        assert_eq!(index.admit(at(2, 5), second, Some(proof(2))), ADMITTED, "another channel has its own");
    }
}

#[test]
fn an_unsigned_event_can_become_verified_under_the_same_id() {
    let mut index = Limited::of(10);
    assert_eq!(index.admit(at(1, 5), notice(5, 1), None), ADMITTED);
    assert_eq!(index.admit(at(1, 5), signed(5, 2), Some(proof(5))), ADMITTED);
    assert_eq!(index.admit(at(1, 5), notice(5, 1), None), Err(Alarm::Contradiction(at(1, 5))));
}

#[test]
fn the_oldest_proof_is_evicted_and_memory_is_bounded() {
    let mut index = Limited::of(3);
    for number in 0..50 {
        assert_eq!(index.admit(at(1, number.into()), signed(number.into(), 1), Some(proof(number))), ADMITTED);
    }
    let recent = &index.0.channels[&at(1, 0).channel_id];
    assert_eq!((recent.contents.len(), recent.proofs.len(), index.0.proofs.len()), (3, 3, 3));
    assert_eq!(index.admit(at(1, 60), signed(60, 1), Some(proof(47))), Err(Alarm::DuplicateProof(at(1, 47))));
    assert_eq!(index.admit(at(1, 60), signed(60, 1), Some(proof(46))), ADMITTED, "forgotten");
}

#[test]
fn a_replay_evicts_no_newer_proof() {
    let mut index = Limited::of(3);
    for number in 47..50 {
        assert_eq!(index.admit(at(1, number.into()), signed(number.into(), 1), Some(proof(number))), ADMITTED);
    }
    for number in 0..40 {
        let replayed = index.replay(at(1, number.into()), signed(number.into(), 1), proof(number));
        assert!(replayed.is_ok(), "{replayed:?}");
    }
    let recent = &index.0.channels[&at(1, 0).channel_id];
    assert_eq!((recent.contents.len(), recent.proofs.len(), index.0.proofs.len()), (3, 3, 3));
    for number in 47..50 {
        let again = index.admit(at(1, 60), signed(60, 1), Some(proof(number)));
        assert_eq!(again, Err(Alarm::DuplicateProof(at(1, number.into()))), "the newest proofs are still known");
    }
}

#[test]
fn a_replayed_event_that_differs_is_a_contradiction() {
    let mut index = Limited::of(10);
    assert_eq!(index.admit(at(1, 5), signed(5, 50), Some(proof(5))), ADMITTED);
    assert!(index.replay(at(1, 5), signed(5, 50), proof(5)).is_ok());
    for (content, number) in [(signed(6, 50), 6), (signed(5, 51), 7)] {
        assert_eq!(index.replay(at(1, 5), content, proof(number)).err(), Some(Alarm::Contradiction(at(1, 5))));
    }
}

#[test]
fn a_flood_in_one_channel_evicts_nothing_of_another() {
    let mut index = Limited::of(3);
    assert_eq!(index.admit(at(1, 5), signed(5, 50), Some(proof(200))), ADMITTED);
    for number in 0..50 {
        assert_eq!(index.admit(at(2, number.into()), signed(number.into(), 1), Some(proof(number))), ADMITTED);
    }
    assert_eq!(index.admit(at(1, 6), signed(6, 50), Some(proof(200))), Err(Alarm::DuplicateProof(at(1, 5))));
}

#[test]
fn proofs_in_the_ledger_are_known_and_shared_ones_are_reported() {
    let recent = RecentEvents::default();
    let delivered = |offset| ledger::Proof { digest: [7; 16], offset: Offset::new(offset).unwrap() };
    assert_eq!(recent.remember(at(1, 0).channel_id, &[delivered(5)]), []);
    assert_eq!(recent.remember(at(2, 0).channel_id, &[delivered(9)]), [(Offset::new(9).unwrap(), at(1, 5))]);
    let admitted = recent.lock().admit(at(1, 6), signed(6, 1), Some(ShownProof::new(proof(7))), 10);
    assert_eq!(admitted, Err(Alarm::DuplicateProof(at(1, 5))));
}

#[test]
fn unsigned_events_are_compared_by_payload_regardless_of_member_order() {
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
        let Verdict::Unsigned(notice) = verifier.verify(raw) else { panic!("a notice") };
        let channel = ChannelId(Uuid::from_u128(1));
        assert_eq!(recent.notice(channel, &notice).is_ok(), same, "{payload}");
    }
}

#[test]
fn an_admitted_event_is_not_new_but_a_proof_for_an_unsigned_event_is() {
    let mut index = Limited::of(10);
    let mut is_news = |content| index.0.admit(at(1, 5), content, None, 10).unwrap().is_news;
    assert!(is_news(notice(5, 50)) && !is_news(notice(5, 50)));
    assert!(is_news(signed(5, 50)) && !is_news(signed(5, 50)));
}

#[test]
fn a_proof_first_shown_by_another_instance_is_a_duplicate_here() {
    let (recent, [mine, other]) = (RecentEvents::default(), [at(1, 5), at(2, 9)]);
    let event = |id| RawEvent { offset: mine.offset, id: Some(EventId(Uuid::from_u128(id))), json: Bytes::new() };
    let proof = |number| Proof {
        digest: Hash256([number; 32]),
        signers: Vec::new(),
        required: 0,
        strangers: 0,
        event_hash: Hash256([number; 32]),
        workflow_owner: Address([0; 20]),
        workflow_id: Hash256([0; 32]),
        execution_id: Hash256([0; 32]),
    };
    let unknown = |number| ledger::Proof { digest: digest_of(&proof(number).digest), offset: mine.offset };
    let unknown_of = |id, number| recent.unknown(mine.channel_id, &event(id), &proof(number));
    assert_eq!(unknown_of(1, 1), Some(unknown(1)));
    recent.learn(&[(unknown(1).digest, other)]);
    assert_eq!(unknown_of(1, 1), None);
    let alarm = recent.verified(mine.channel_id, &event(1), &proof(1), false);
    assert_eq!(alarm, Err(Alarm::ProofOfChannel { original: other, digest: proof(1).digest }));

    assert_eq!(unknown_of(2, 2), Some(unknown(2)));
    assert!(recent.verified(mine.channel_id, &event(2), &proof(2), false).is_ok());
    recent.learn(&[(unknown(2).digest, other)]);
    assert!(
        recent.verified(mine.channel_id, &event(2), &proof(2), false).is_ok(),
        "a proof that is known here stays known"
    );
    assert_eq!(unknown_of(3, 3), None, "other content at the offset");
}
