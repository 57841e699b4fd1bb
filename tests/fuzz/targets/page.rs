//! A page of the service: any bytes are refused, or become events whose bytes, order and verdicts hold.

#![no_main]

use api::Page;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use proof::event::{ChannelId, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier};
use record::{ChannelRef, Lines, Message, Record, Shape};
use uuid::Uuid;

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    let Ok(Page { events, .. }) = Page::read(&body) else { return };
    assert!(events.is_sorted_by(|newer, older| newer.offset > older.offset), "the offsets descend");
    let verifier = Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([2; 20]));
    let channel = ChannelRef { name: "c".into(), id: ChannelId(Uuid::from_u128(1)) };
    for event in events {
        assert!(data.windows(event.json.len()).any(|part| part == event.json), "a record is a part of the body");
        let (key, json) = (event.event_key(), event.json.clone());
        if let Some(again) = RawEvent::locate(json.clone()) {
            assert_eq!(again.event_key(), key);
        }
        match verifier.verify(event) {
            Verdict::Verified(_) => panic!("no signature of this signer exists"),
            Verdict::Pending(raw) | Verdict::Rejected(raw, _) => assert_eq!(raw.json, json),
            Verdict::Unsigned(unsigned) => {
                let record = Record::unsigned(&channel, &unsigned, &mut Lines::default());
                let message = Message::new(&record.into(), &Shape::default());
                let body = message.body();
                assert!(!body.contains(&b'\n'), "a record is one line");
                assert!(is_json(body), "a record is JSON");
                // Line breaks between the values of an event are replaced.
                let is_unchanged = body.windows(json.len()).any(|part| part == json);
                assert!(is_unchanged || json.contains(&b'\n') || json.contains(&b'\r'), "the record contains the event");
            }
        }
    }
});

/// Whether every reader can read the text, except for its numbers: JSON does not limit them, but `serde_json` cannot represent 1e999.
fn is_json(text: &[u8]) -> bool {
    let read = serde_json::from_slice::<serde_json::Value>(text);
    read.map_or_else(|error| error.to_string().starts_with("number out of range"), |_| true)
}
