//! An event's record as the service returns it.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use uuid::Uuid;

use super::content::{verifiable_event, verifiable_result};
use super::facts::Facts;
use super::id;
use super::kind::{EventSpec, Kind, Original, ReplayedId, Tampering};
use super::log::Entry;
use super::network::{Network, Subject};
use super::payload;
use super::random::{Purpose, draw};
use super::roster::Roster;
use crate::verify::event_hash;

/// A record's JSON. Signed once, cheap to write again, with its proofs or without.
#[derive(Clone, Debug)]
pub(super) struct Rendered {
    json: Bytes,
    /// Where the items of `headers.proofs` are.
    proofs: Range<usize>,
}

impl Rendered {
    /// Appends the record, leaving out its proofs where they are withheld.
    pub(super) fn write(&self, withheld: bool, out: &mut Vec<u8>) {
        if withheld {
            out.extend_from_slice(&self.json[..self.proofs.start]);
            out.extend_from_slice(&self.json[self.proofs.end..]);
        } else {
            out.extend_from_slice(&self.json);
        }
    }

    /// How long the record is with its proofs.
    pub(super) fn len(&self) -> usize {
        self.json.len()
    }
}

/// Makes an event's record. Costs the signatures of its proof: not for the async threads.
pub(super) fn render(seed: u64, channel: u64, network: &Network, roster: &Roster, entry: &Entry) -> Rendered {
    let Content { proofs, payload } = match entry.spec {
        EventSpec::Displaced(from) => {
            content(seed, from.channel, network, &Roster::new(seed, from.channel), &Entry::of_original(&from))
        }
        _ => content(seed, channel, network, roster, entry),
    };
    let id = match entry.spec {
        EventSpec::Displaced(Original { channel, index, id: ReplayedId::Same, .. }) => id::of(seed, channel, index),
        _ => id::of(seed, channel, entry.index),
    };
    assemble(id, entry, &proofs, &payload)
}

/// What of a record does not speak of its place.
struct Content {
    proofs: String,
    payload: String,
}

fn content(seed: u64, channel: u64, network: &Network, roster: &Roster, entry: &Entry) -> Content {
    let facts = Facts::of(seed, channel, roster, entry);
    let shown = facts.kind.is_signed().then(|| signed_text(seed, channel, entry, &facts));
    let how = match entry.spec {
        EventSpec::Forged(how) => Some(how),
        _ => None,
    };
    let proofs = shown.as_ref().map(|text| prove(network, entry, &facts, &text.honest, how)).unwrap_or_default();
    let payload = match entry.spec {
        EventSpec::Malformed => r#""lost""#.to_owned(),
        _ => payload::of(&facts, shown.as_ref().map(|text| text.shown.as_str())),
    };
    Content { proofs, payload }
}

/// The text that the network signed, and the one in the record: the same, unless somebody changed it.
struct SignedText {
    honest: String,
    shown: String,
}

fn signed_text(seed: u64, channel: u64, entry: &Entry, facts: &Facts<'_>) -> SignedText {
    let content = |purpose| {
        let mut rng = draw(seed, purpose, channel, entry.index);
        STANDARD.encode(match facts.kind {
            Kind::QueryCompleted => verifiable_result(facts, &mut rng),
            _ => verifiable_event(facts, &mut rng),
        })
    };
    let honest = content(Purpose::Content);
    let shown = match entry.spec {
        EventSpec::Forged(Tampering::ContentChanged) => content(Purpose::Altered),
        _ => honest.clone(),
    };
    SignedText { honest, shown }
}

fn prove(network: &Network, entry: &Entry, facts: &Facts<'_>, signed: &str, how: Option<Tampering>) -> String {
    let subject = Subject {
        event_hash: event_hash(signed),
        timestamp: facts.timestamp,
        workflow_id: facts.watcher.workflow_id,
        execution_id: facts.execution_id,
        round: entry.index,
    };
    network.proofs(&subject, how)
}

fn assemble(id: Uuid, entry: &Entry, proofs: &str, payload: &str) -> Rendered {
    let (offset, name) = (entry.offset, entry.spec.kind().event_type());
    let id = match entry.spec {
        EventSpec::WithoutId => String::new(),
        _ => format!(r#""event_id":"{id}","#),
    };
    let mut json = format!(r#"{{{id}"headers":{{"type":"{name}","offset":{offset},"proofs":["#);
    let start = json.len();
    json.push_str(proofs);
    let proofs = start..json.len();
    json.push_str(r#"]},"payload":"#);
    json.push_str(payload);
    json.push('}');
    Rendered { json: json.into(), proofs }
}
