//! Sample events for trying a template before real events arrive. Their records are rendered but never delivered.
//!
//! Each sample in `samples.json` has the fields that the service documents for its kind. Every field that an event may lack
//! is missing in at least one sample.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::line::{UNSIGNED, Verification};
use crate::{ChannelRef, Lines, Record};
use proof::event::{ChannelId, Event};
use proof::verify::{Address, Hash, Proof};

/// The time at which the samples claim to have been received from the service, in Unix seconds.
const READ: i64 = 1_715_688_016;

#[derive(Deserialize)]
struct TemplateSample<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    payload: Value,
    /// The signed content of a verified event. A notice has none.
    signed: Option<Value>,
    /// Whether the event has no id and no known time of reading.
    #[serde(default)]
    is_bare: bool,
}

/// The name and the record of each sample.
pub(super) fn all() -> Vec<(&'static str, Record)> {
    let samples: Vec<TemplateSample<'static>> =
        serde_json::from_str(include_str!("samples.json")).expect("the tests have read the samples");
    samples.into_iter().map(|sample| (sample.name, sample.record())).collect()
}

impl TemplateSample<'_> {
    fn record(self) -> Record {
        let Self { kind, mut payload, signed, is_bare, .. } = self;
        let mut proofs = json!([]);
        if let Some(signed) = &signed {
            proofs = json!([{"alg": "…", "ocr_report": "0x01", "ocr_context": "0x02", "signatures": ["0x03", "0x04"]}]);
            let member = if kind == "query.status" { "verifiable_result" } else { "verifiable_event" };
            let text = signed.as_str().map_or_else(|| signed.to_string(), str::to_owned);
            payload[member] = STANDARD.encode(text).into();
        }
        let mut event = json!({"headers": {"type": kind, "offset": 15_520, "proofs": proofs}, "payload": payload});
        let mut lines = Lines::default();
        if !is_bare {
            event["event_id"] = "d290f1ee-6c54-4b01-90e6-d701748f0851".into();
            lines = lines.received(Timestamp::from_second(READ).unwrap_or_default());
        }
        let event = Event::parse(event.to_string().into()).expect("a sample is an event");
        let channel = ChannelRef { name: "sample".into(), id: ChannelId(Uuid::from_u128(1)) };
        if signed.is_none() {
            return Record::new(&channel, &event, &Verification::status(UNSIGNED), &mut lines);
        }
        let hash = Hash([7; 32]);
        let proof = Proof {
            digest: hash,
            signers: vec![Address([8; 20]), Address([9; 20])],
            required: 2,
            strangers: 0,
            event_hash: hash,
            workflow_owner: Address([10; 20]),
            workflow_id: hash,
            execution_id: hash,
        };
        Record::proved(&channel, &event, &proof, &mut lines)
    }
}
