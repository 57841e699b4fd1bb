//! The OCR proof as the service writes it: text, nothing of it checked.

use serde::Serialize;
use serde_json::value::RawValue;

use super::json::{Malformed, Object};

/// What `headers.proofs` holds. Exactly one OCR proof makes an event verifiable.
#[derive(Clone, Debug)]
pub enum Proofs {
    /// No proof: where one is due, it has not come yet.
    None,
    /// The one proof.
    One(OcrProof),
    /// One proof that lacks what an OCR proof has, or is not an object.
    Unreadable,
    /// More than one. The reference counts every object, also a proof of another kind, and refuses them all.
    Many,
}

/// An oracle network's proof: the report, its context and the signatures, in hex as they came.
#[derive(Clone, Debug, Serialize)]
pub struct OcrProof {
    /// `0x` and the report's bytes.
    pub report: Box<str>,
    /// `0x` and the bytes that are hashed with the report.
    pub context: Box<str>,
    /// `0x` and 65 bytes each. `None` is a `null`: malformed, but only if it is ever looked at.
    pub signatures: Vec<Option<Box<str>>>,
}

impl Proofs {
    pub(super) fn read(headers: &Object<'_>) -> Result<Self, Malformed> {
        // Stricter than the reference, which passes over array items that are not objects: here they count.
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
