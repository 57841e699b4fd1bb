//! The OCR proof as the service writes it: unchecked text.

use serde::Serialize;
use serde_json::value::RawValue;

use super::json::{Malformed, Object};

/// The contents of `headers.proofs`. An event can be verified only if it has exactly one OCR proof.
#[derive(Clone, Debug)]
pub enum Proofs {
    /// No proof. If the event must have one, it has not arrived yet.
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
    /// `0x` and 65 bytes for each signature. `None` represents `null`. It is malformed, but only if the signature is read.
    pub signatures: Vec<Option<Box<str>>>,
}

impl Proofs {
    pub(super) fn read(headers: &Object<'_>) -> Result<Self, Malformed> {
        // Stricter than the reference, which skips array items that are not objects. Here they count.
        let items = headers.get::<Vec<&RawValue>>("proofs")?.unwrap_or_default();
        Ok(match items.as_slice() {
            [] => Self::None,
            [item] => OcrProof::read(item.get()).map_or(Self::Unreadable, Self::One),
            _ => Self::Many,
        })
    }
}

impl OcrProof {
    fn read(json: &str) -> Result<Self, Malformed> {
        let proof = Object::read(json.as_bytes())?;
        let required = |name| Ok::<Box<str>, _>(proof.text(name)?.ok_or(Malformed::Missing(name))?.into());
        proof.text("alg")?;
        Ok(Self {
            report: required("ocr_report")?,
            context: required("ocr_context")?,
            signatures: proof.get("signatures")?.unwrap_or_default(),
        })
    }
}
