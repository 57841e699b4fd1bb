//! An event's record as the service returns it.

use bytes::Bytes;
use uuid::Uuid;

use super::content::{Signed, verifiable_event, verifiable_result};
use super::facts::ContentFacts;
use super::id;
use super::kind::{EventSpec, Kind, Original, ReplayedId, Tampering};
use super::log_entry::{LogEntry, Rendered};
use super::network::{Network, ProofSubject};
use super::payload;
use super::roster::Roster;
use crate::misbehaviour::Misbehaviour;
use crate::random::{Purpose, draw};
use proof::verify::Hash;

/// Makes an event's record. This computes the signatures of its proof, so it must not run on an async thread.
pub(crate) fn render(seed: u64, channel: u64, network: &Network, roster: &Roster, entry: &LogEntry) -> Rendered {
    let content = match entry.spec {
        EventSpec::Displaced(from) => {
            content(seed, from.channel, network, &Roster::new(seed, from.channel), &LogEntry::of_original(&from))
        }
        _ => content(seed, channel, network, roster, entry),
    };
    let id = match entry.spec {
        EventSpec::Displaced(Original { channel, index, id: ReplayedId::Same, .. }) => id::of(seed, channel, index),
        _ => id::of(seed, channel, entry.drawn),
    };
    assemble(id, entry, content)
}

/// The part of a record that does not depend on its offset.
struct Content {
    proofs: String,
    payload: String,
    /// The shared padding, and its position in the payload.
    padding: Option<(usize, Bytes)>,
}

fn content(seed: u64, channel: u64, network: &Network, roster: &Roster, entry: &LogEntry) -> Content {
    let facts = ContentFacts::of(seed, channel, roster, entry);
    let shown = facts.kind.is_signed().then(|| signed_text(seed, channel, network, entry, &facts));
    let how = match entry.spec {
        EventSpec::Forged(how) => Some(how),
        _ => None,
    };
    let proofs = shown.as_ref().map(|text| prove(network, entry, &facts, text.honest, how)).unwrap_or_default();
    if entry.spec == EventSpec::Malformed {
        return Content { proofs, payload: r#""lost""#.to_owned(), padding: None };
    }
    let signed = shown.as_ref().map(|text| &text.shown);
    let mut payload = payload::of(&facts, signed);
    let padding = entry.padding().map(|padding| {
        if let Some(signed) = signed {
            let at = payload.find(&signed.text).expect("the payload has its signed text");
            return (at, padding.signed.clone());
        }
        payload.replace_range(..1, ",");
        (0, padding.notice.clone())
    });
    Content { proofs, payload, padding }
}

/// The hash of the text that the network signed, and the text in the record. The texts are the same, unless the record was
/// changed.
struct SignedText {
    honest: Hash,
    shown: Signed,
}

fn signed_text(seed: u64, channel: u64, network: &Network, entry: &LogEntry, facts: &ContentFacts<'_>) -> SignedText {
    let confidence = network.confidence.of(facts.watcher.id);
    let content = |purpose| {
        let mut rng = draw(seed, purpose, channel, entry.drawn);
        let json = match facts.kind {
            Kind::QueryCompleted | Kind::QueryFailed => verifiable_result(facts, &mut rng),
            _ => verifiable_event(facts, network.has_confidence, confidence, &mut rng),
        };
        Signed::of(json, entry.padding())
    };
    let honest = content(Purpose::Content);
    let hash = honest.hash;
    let shown = match entry.spec {
        EventSpec::Forged(Tampering::ContentChanged) => content(Purpose::Altered),
        _ => honest,
    };
    SignedText { honest: hash, shown }
}

fn prove(
    network: &Network,
    entry: &LogEntry,
    facts: &ContentFacts<'_>,
    event_hash: Hash,
    how: Option<Tampering>,
) -> String {
    let subject = ProofSubject {
        event_hash,
        timestamp: facts.timestamp,
        workflow_id: facts.workflow_id,
        execution_id: facts.execution_id,
        round: entry.drawn,
        is_unproved: entry.misbehaviour.is_some_and(Misbehaviour::is_unproved),
    };
    network.proofs(&subject, how)
}

fn assemble(id: Uuid, entry: &LogEntry, content: Content) -> Rendered {
    let (offset, name) = (entry.offset, entry.spec.kind().event_type());
    let id = match entry.spec {
        EventSpec::WithoutId => String::new(),
        _ => format!(r#""event_id":"{id}","#),
    };
    let mut json = format!(r#"{{{id}"headers":{{"type":"{name}","offset":{offset},"proofs":["#);
    let start = json.len();
    json.push_str(&content.proofs);
    let proofs = start..json.len();
    json.push_str(r#"]},"payload":"#);
    let padding = content.padding.map(|(at, padding)| (json.len() + at, padding));
    json.push_str(&content.payload);
    json.push('}');
    Rendered { json: json.into(), proofs, padding }
}
