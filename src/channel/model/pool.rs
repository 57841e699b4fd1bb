//! The records of all histories. They are small, and have real proofs. Each record is signed and verified only once, because
//! every history has the same record for the same form and offset.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use k256::ecdsa::SigningKey;
use uuid::Uuid;

use proof::event::{ChannelId, EventId, Offset, RawEvent};
use proof::verify::{Address, OCR_REPORT_LENGTH, SignerSet, Verdict, Verifier, event_hash, keccak256, signed_digest};

use record::testing::signed_text;

use super::history::SameId;

/// The form in which a reading can show an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// The event with its proof.
    Proved,
    /// The same event without its proof.
    Bare,
    /// The same event, but its content differs from the signed content.
    Altered,
    /// A record without a payload.
    Unreadable,
    /// The event with its proof, but without an id.
    Nameless,
    /// A notice, which is never signed.
    Notice,
    /// A forged event, in one of several ways.
    Forged,
    /// A forged event without an id.
    ForgedNameless,
    /// Another event at the same offset, with its proof.
    Renewed,
    /// The content and the proof of the original event at this offset. The id is new, or is the id of the original.
    Duplicate(Offset, SameId),
}

/// The forgery of an event at each offset, named by the reason for its rejection.
const FORGERIES: [&str; 5] =
    ["event-hash-mismatch", "too-few-signatures", "wrong-owner", "multiple-proofs", "malformed-signature"];

const OWNER: Address = Address([7; 20]);
const CONTEXT: [u8; 1] = [1];

/// Returns the reason for which a forged event at this offset must be rejected.
pub(super) fn forged_reason(offset: Offset) -> &'static str {
    FORGERIES[number(offset) % FORGERIES.len()]
}

pub(super) fn id(offset: Offset) -> EventId {
    EventId(Uuid::from_u128(0x1000 + number(offset) as u128))
}

/// Returns the id of the event at this offset after the service was restored.
pub(super) fn renewed_id(offset: Offset) -> EventId {
    EventId(Uuid::from_u128(0x1000_0000 + number(offset) as u128))
}

pub(super) fn channel() -> ChannelId {
    ChannelId(Uuid::from_u128(7))
}

fn number(offset: Offset) -> usize {
    usize::try_from(offset.get()).unwrap()
}

struct Pool {
    key: SigningKey,
    stranger: SigningKey,
    verifier: Arc<Verifier>,
    records: HashMap<(Offset, Form), RawEvent>,
    /// Keyed by the address of a record's bytes, which are never freed.
    verdicts: HashMap<*const u8, Verdict>,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::new(Pool::new());
}

/// Returns the record for an offset and a form.
pub(super) fn record(offset: Offset, form: Form) -> RawEvent {
    POOL.with_borrow_mut(|pool| pool.record(offset, form))
}

/// Returns the verifier's verdict on a record. The verdict is remembered.
pub(super) fn verdict(raw: RawEvent) -> Verdict {
    POOL.with_borrow(|pool| match pool.verdicts.get(&raw.json.as_ptr()) {
        Some(verdict) => verdict.clone(),
        None => pool.verifier.verify(raw),
    })
}

pub(super) fn verifier() -> Arc<Verifier> {
    POOL.with_borrow(|pool| pool.verifier.clone())
}

impl Pool {
    fn new() -> Self {
        let key = |byte| SigningKey::from_slice(&[byte; 32]).unwrap();
        let (key, stranger) = (key(1), key(2));
        let verifier = Arc::new(Verifier::new(SignerSet::new(vec![address_of(&key)], 1).unwrap(), OWNER));
        Self { key, stranger, verifier, records: HashMap::new(), verdicts: HashMap::new() }
    }

    fn record(&mut self, offset: Offset, form: Form) -> RawEvent {
        if let Some(known) = self.records.get(&(offset, form)) {
            return known.clone();
        }
        let raw = RawEvent::locate(self.json(offset, form).into()).unwrap();
        self.verdicts.insert(raw.json.as_ptr(), self.verifier.verify(raw.clone()));
        self.records.insert((offset, form), raw.clone());
        raw
    }

    fn json(&self, offset: Offset, form: Form) -> String {
        let (text, own) = (content(offset, "text"), Some(id(offset)));
        let honest = || proof(&text, &self.key, OWNER);
        match form {
            Form::Proved => signed(offset, own, &text, &honest()),
            Form::Bare => signed(offset, own, &text, ""),
            Form::Altered => signed(offset, own, "other", &honest()),
            Form::Unreadable => record_of(offset, own, "watcher.event", &honest(), r#""lost""#),
            Form::Nameless => signed(offset, None, &text, &honest()),
            Form::Notice => notice(offset, own),
            Form::Forged => self.forged(offset, own),
            Form::ForgedNameless => self.forged(offset, None),
            Form::Renewed => {
                let text = content(offset, "renewed");
                signed(offset, Some(renewed_id(offset)), &text, &proof(&text, &self.key, OWNER))
            }
            Form::Duplicate(original, same) => {
                let text = content(original, "text");
                let id = if same == SameId::Yes { Some(id(original)) } else { own };
                signed(offset, id, &text, &proof(&text, &self.key, OWNER))
            }
        }
    }

    fn forged(&self, offset: Offset, id: Option<EventId>) -> String {
        let text = content(offset, "text");
        let honest = proof(&text, &self.key, OWNER);
        let (text, proof) = match forged_reason(offset) {
            "event-hash-mismatch" => ("other", honest),
            "too-few-signatures" => (&*text, proof(&text, &self.stranger, OWNER)),
            "wrong-owner" => (&*text, proof(&text, &self.key, Address([8; 20]))),
            "multiple-proofs" => (&*text, format!("{honest},{honest}")),
            _ => (&*text, honest.replace(r#""signatures":["0x"#, r#""signatures":["0xzz"#)),
        };
        signed(offset, id, text, &proof)
    }
}

fn proof(text: &str, key: &SigningKey, owner: Address) -> String {
    let mut report = [0; OCR_REPORT_LENGTH];
    report[87..107].copy_from_slice(&owner.0);
    report[109..].copy_from_slice(&event_hash(text).0);
    let digest = signed_digest(&report, &CONTEXT);
    let (signature, recovery) = key.sign_prehash_recoverable(&digest.0);
    let (report, context) = (hex::encode(report), hex::encode(CONTEXT));
    let signature = hex::encode([&signature.to_bytes()[..], &[recovery.to_byte()]].concat());
    format!(r#"{{"ocr_report":"0x{report}","ocr_context":"0x{context}","signatures":["0x{signature}"]}}"#)
}

/// The levels of confidence of watcher events, and the steps of operations. They are used in rotation.
const CONFIDENCES: [&str; 4] = ["", "latest", "safe", "finalized"];
const STEPS: [&str; 4] = ["failed", "confirmed_latest", "confirmed_safe", "confirmed"];

/// Returns the kind of the event at an offset, and its level of confidence or its step.
fn rotation(offset: Offset) -> (usize, usize) {
    (number(offset) % 3, number(offset) / 3 % CONFIDENCES.len())
}

/// Returns a text that the network signs: a log, the confirmation of an operation, or the result of a query.
fn content(offset: Offset, word: &str) -> String {
    let (kind, level) = rotation(offset);
    let named = match kind {
        0 => format!(r#""service":"dvp","chain_event":{{"confidence":"{}"}}"#, CONFIDENCES[level]),
        1 => r#""service":"_crec","name":"OperationConfirmed""#.to_owned(),
        _ => r#""service":"_crec","name":"ChainQuery""#.to_owned(),
    };
    signed_text(&format!(r#"{{"{word}":{offset},{named}}}"#))
}

/// Returns how many of the limits `latest`, `safe` and `finalized` an event passes in this form.
pub(super) fn limits_passed(offset: Offset, form: Form) -> usize {
    let original = match form {
        Form::Notice => return if number(offset) % 2 == 1 { 0 } else { 3 },
        Form::Duplicate(original, _) => original,
        _ => offset,
    };
    let ((kind, step), (content, level)) = (rotation(offset), rotation(original));
    let has_failed = step == 0;
    match (kind, content) {
        (0 | 2, 0) => level.max(1),
        (0, _) | (2, 1) => 1,
        (1, 1) if has_failed => 1,
        (1, _) if has_failed => 3,
        (1, 0) => step.min(level.max(1)),
        (1, _) => step,
        _ => 3,
    }
}

/// Returns a notice about a wallet, or about an operation that is not confirmed yet.
fn notice(offset: Offset, id: Option<EventId>) -> String {
    if number(offset) % 2 == 1 {
        return record_of(offset, id, "operation.status", "", r#"{"status":"accepted"}"#);
    }
    record_of(offset, id, "wallet.status", "", r#"{"status":"deployed"}"#)
}

/// Returns an event with a signed text. The types of signed events are used in rotation.
fn signed(offset: Offset, id: Option<EventId>, text: &str, proof: &str) -> String {
    let (kind, step) = rotation(offset);
    let (kind, payload) = match kind {
        0 => ("watcher.event", format!(r#"{{"verifiable_event":"{text}"}}"#)),
        1 => ("operation.status", format!(r#"{{"status":"{}","verifiable_event":"{text}"}}"#, STEPS[step])),
        _ => ("query.status", format!(r#"{{"status":"completed","verifiable_result":"{text}"}}"#)),
    };
    record_of(offset, id, kind, proof, &payload)
}

fn record_of(offset: Offset, id: Option<EventId>, kind: &str, proof: &str, payload: &str) -> String {
    let id = id.map_or_else(String::new, |id| format!(r#""event_id":"{id}","#));
    format!(r#"{{{id}"headers":{{"type":"{kind}","offset":{offset},"proofs":[{proof}]}},"payload":{payload}}}"#)
}

fn address_of(key: &SigningKey) -> Address {
    let point = key.verifying_key().to_sec1_point(false);
    let hash = keccak256([&point.as_bytes()[1..]]);
    Address(*hash.0.last_chunk().unwrap())
}
