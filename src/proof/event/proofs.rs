//! The proofs of an event, as they arrived.

use serde::Serialize;
use serde_json::value::RawValue;

use super::json::{Malformed, Object};
use super::unknown::{UnknownPart, UnknownValues};

/// The contents of `headers.proofs`. An event can be verified only if it has exactly one OCR proof.
#[derive(Clone, Debug)]
pub enum Proofs {
    /// No proof. If the event must have a proof, the proof has not arrived yet.
    None,
    /// Exactly one proof.
    One(OcrProof),
    /// One proof that is incomplete or not an object.
    Unreadable,
    /// More than one proof. The reference counts every object, including other kinds of proof, and refuses such an event.
    Many,
}

/// An oracle network's proof: the report, its context and the signatures, in hex as they arrived.
#[derive(Clone, Debug, Serialize)]
pub struct OcrProof {
    /// `0x` and the report's bytes.
    pub report: Box<str>,
    /// `0x` and the bytes that are hashed with the report.
    pub context: Box<str>,
    /// `0x` and 65 bytes for each signature. `None` represents `null`, which makes the proof malformed only if the verifier
    /// reaches that signature.
    pub signatures: Vec<Option<Box<str>>>,
}

/// The number of proofs of one event that are searched for unknown values. An event with several proofs is rejected anyway.
const MAX_EXAMINED: usize = 8;

impl Proofs {
    pub(super) fn read(headers: &Object<'_>, unknown: &mut UnknownValues) -> Result<Self, Malformed> {
        // Stricter than the reference, which skips array items that are not objects. Here they count.
        let items = headers.get::<Vec<&RawValue>>("proofs")?.unwrap_or_default();
        Ok(match items.as_slice() {
            [] => Self::None,
            [item] => OcrProof::read(item.get(), unknown).map_or(Self::Unreadable, Self::One),
            items => {
                for item in items.iter().take(MAX_EXAMINED) {
                    // Only the unknown values are of interest.
                    let _ = OcrProof::read(item.get(), unknown);
                }
                Self::Many
            }
        })
    }
}

impl OcrProof {
    fn read(json: &str, unknown: &mut UnknownValues) -> Result<Self, Malformed> {
        let proof = Object::read(json.as_bytes())?;
        unknown.add_members(UnknownPart::Proof, &proof, |name| {
            matches!(name, "alg" | "ocr_report" | "ocr_context" | "signatures")
        });
        let required = |name| Ok::<Box<str>, _>(proof.text(name)?.ok_or(Malformed::Missing(name))?.into());
        // An empty `alg` says nothing.
        if let Some(alg) = proof.text("alg")?.filter(|alg| !matches!(&**alg, "" | "ecdsa-secp256k1")) {
            unknown.add(UnknownPart::Proof, &alg);
        }
        Ok(Self {
            report: required("ocr_report")?,
            context: required("ocr_context")?,
            signatures: proof.get("signatures")?.unwrap_or_default(),
        })
    }
}
