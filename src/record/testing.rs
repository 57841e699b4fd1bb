//! Records for tests.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use proof::event::{ChannelId, Event};
use proof::verify::Hash;

use crate::line::{self, Verification};
use crate::{ChannelRef, Lines, Record};

/// A sample channel.
pub fn channel() -> ChannelRef {
    ChannelRef { name: "c".into(), id: ChannelId(Uuid::from_u128(1)) }
}

pub(crate) fn event(kind: &str, proofs: &str, payload: &str) -> Event {
    let id = Uuid::from_u128(2);
    let headers = format!(r#"{{"type":"{kind}","offset":5,"proofs":[{proofs}]}}"#);
    Event::parse(format!(r#"{{"event_id":"{id}","headers":{headers},"payload":{payload}}}"#).into()).unwrap()
}

pub(crate) fn assembled(event: &Event, status: &'static str) -> Record {
    let digest = (status == line::VERIFIED).then_some(Hash([7; 32]));
    Record { digest, ..Record::new(&channel(), event, &Verification::status(status), &mut Lines::default()) }
}

/// Makes the record of a notice of type `kind`.
pub fn notice(kind: &str, payload: &str) -> Record {
    assembled(&event(kind, "", payload), line::UNSIGNED)
}

/// Makes a `watcher.event` record as if it were verified. `members` are members of its payload, and `signed` is the signed
/// text.
pub fn proved(members: &str, signed: &str) -> Record {
    proved_as("watcher.event", members, signed)
}

/// Returns the text that the network signs for this content.
pub fn signed_text(content: &str) -> String {
    STANDARD.encode(content)
}

/// Like [`proved`], for an event of type `kind`.
pub fn proved_as(kind: &str, members: &str, signed: &str) -> Record {
    let proof = r#"{"alg":"a","ocr_report":"0x01","ocr_context":"0x02","signatures":["0x03","0x04"]}"#;
    let name = if kind == "query.status" { "verifiable_result" } else { "verifiable_event" };
    let separator = if members.is_empty() { "" } else { "," };
    let payload = format!(r#"{{{members}{separator}"{name}":"{}"}}"#, signed_text(signed));
    let event = event(kind, proof, &payload);
    assembled(&event, line::VERIFIED)
}
