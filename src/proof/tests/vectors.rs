//! Compares the verifier with the recorded verdicts of the service's own reference verifier (tests/vectors/README.md).
//!
//! The verifier is never laxer than the reference. Each case in which it is stricter is listed in [`STRICTER`] with a
//! reason.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use proof::event::{Event, EventType, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier, workflow_owner};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

const VERDICTS: &str = include_str!("../../../tests/vectors/verdicts.json");
const RECORDED: &str = include_str!("../../../tests/vectors/recorded.json");

/// The cases that this verifier rejects although the reference accepts them, with the reason for each.
const STRICTER: [(&str, &str); 40] = [
    ("badsig/raw-65-ascii-chars-recoverable-unknown/before-threshold", NO_PREFIX),
    ("context/text-no-prefix-signed-over-ascii-text", NO_PREFIX),
    ("context/text-one-char-0-signed-over-ascii", NO_PREFIX),
    ("context/text-plain-word-signed-over-ascii", NO_PREFIX),
    ("context/text-single-x-signed-over-ascii", NO_PREFIX),
    ("context/text-unicode-word-signed-over-utf8", NO_PREFIX),
    ("event/duplicate-headers-merge-type-only-last", TWICE),
    ("event/duplicate-headers-null-last", TWICE),
    ("event/duplicate-payload-good-last", TWICE),
    ("event/invalid-utf8-in-unrelated-key", NOT_UTF8),
    ("event/unknown-field-deep-200", TOO_DEEP),
    ("event/unknown-field-deep-5000", TOO_DEEP),
    ("event/unknown-field-lone-surrogate", HALF_A_PAIR),
    ("event/unknown-payload-field-deep-200", TOO_DEEP),
    ("event/unknown-payload-field-deep-9000", TOO_DEEP),
    ("event/uppercase-top-keys", ANOTHER_CASE),
    ("event/watcher_id-lone-surrogate", HALF_A_PAIR),
    ("headers/offset-missing", "without an offset an event has no place in its channel"),
    ("headers/type-key-uppercase", ANOTHER_CASE),
    ("owner/config-32-byte-junk-prefix", NO_OWNER),
    ("owner/config-garbage-vs-zero-owner", NO_OWNER),
    ("owner/config-hex-then-garbage", NO_OWNER),
    ("owner/config-odd-length", NO_OWNER),
    ("payload/operation/verifiable-invalid-utf8-byte-hashed-as-EFBFBD", NOT_UTF8),
    ("payload/operation/verifiable-key-duplicate-good-last", TWICE),
    ("payload/operation/verifiable-key-mixedcase", ANOTHER_CASE),
    ("payload/operation/verifiable-key-uppercase", ANOTHER_CASE),
    ("payload/operation/verifiable-lone-surrogate-escape-hashed-as-EFBFBD", HALF_A_PAIR),
    ("payload/query/verifiable-key-uppercase", ANOTHER_CASE),
    ("payload/watcher/verifiable-invalid-utf8-byte-hashed-as-EFBFBD", NOT_UTF8),
    ("payload/watcher/verifiable-key-duplicate-null-last", TWICE),
    ("payload/watcher/verifiable-key-mixedcase", ANOTHER_CASE),
    ("payload/watcher/verifiable-key-uppercase", ANOTHER_CASE),
    ("payload/watcher/verifiable-lone-surrogate-escape-hashed-as-EFBFBD", HALF_A_PAIR),
    ("proofs/generic-with-numeric-alg+ocr", EVERY_PROOF_COUNTS),
    ("proofs/ocr+array-item", EVERY_PROOF_COUNTS),
    ("proofs/ocr+generic-with-numeric-alg", EVERY_PROOF_COUNTS),
    ("proofs/ocr+generic-with-numeric-ocr_report", EVERY_PROOF_COUNTS),
    ("proofs/ocr-duplicate-report-key-good-last", TWICE),
    ("report/len4096-junk-then-hash", "the hash must directly follow the report's header"),
];

const ANOTHER_CASE: &str = "a known name in another case: other readers ignore it";
const EVERY_PROOF_COUNTS: &str = "every item of proofs counts as a proof";
const HALF_A_PAIR: &str = "half a surrogate pair: readers replace it differently";
const NOT_UTF8: &str = "not UTF-8: readers replace the bytes differently";
const NO_OWNER: &str = "an owner that is not an address is a configuration error";
const NO_PREFIX: &str = "text without 0x is not read as bytes";
const TOO_DEEP: &str = "nested deeper than many readers accept";
const TWICE: &str = "a known name twice: readers differ in which occurrence they use";

#[derive(Deserialize)]
struct Verdicts<'a> {
    signers: Vec<String>,
    min_required: usize,
    workflow_owner: String,
    workflow_owners: Vec<Derivation>,
    #[serde(borrow)]
    cases: Vec<Case<'a>>,
}

#[derive(Deserialize)]
struct Derivation {
    org_id: String,
    tenant_id: String,
    owner: String,
}

#[derive(Deserialize)]
struct Case<'a> {
    name: String,
    method: String,
    #[serde(borrow)]
    event: &'a RawValue,
    event_b64: Option<String>,
    #[serde(default)]
    config: Config,
    verified: bool,
    #[serde(default)]
    must_accept: bool,
    stage: String,
}

/// The settings of a case that differ from the defaults.
#[derive(Default, Deserialize)]
struct Config {
    signers: Option<Vec<String>>,
    min_required: Option<usize>,
    workflow_owner: Option<String>,
    org_id: Option<String>,
    tenant_id: Option<String>,
}

#[derive(Deserialize)]
struct RecordedVerdicts {
    signers: Vec<String>,
    min_required: usize,
    workflow_owner: String,
    event: Value,
}

impl Verdicts<'_> {
    fn read() -> Self {
        serde_json::from_str(VERDICTS).unwrap()
    }

    /// The verifier that a case configures. `None` if its configuration is refused.
    fn verifier(&self, config: &Config) -> Option<Verifier> {
        let signers = config.signers.as_ref().unwrap_or(&self.signers);
        let owner = match config.org_id.as_deref().filter(|org_id| !org_id.is_empty()) {
            Some(org_id) => workflow_owner(org_id, config.tenant_id.as_deref().unwrap_or_default()),
            None => config.workflow_owner.as_ref().unwrap_or(&self.workflow_owner).parse().ok()?,
        };
        verifier(signers, config.min_required.unwrap_or(self.min_required), owner)
    }
}

impl Case<'_> {
    fn bytes(&self) -> Bytes {
        match &self.event_b64 {
            Some(exact) => STANDARD.decode(exact).unwrap().into(),
            None => self.event.get().to_owned().into(),
        }
    }

    /// Whether the case calls another verification method of the reference than the event's type requires.
    fn asks_for_another_step(&self) -> bool {
        let step = match Event::parse(self.bytes()).map(|event| event.kind) {
            Ok(EventType::WatcherEvent) => "Verify",
            Ok(EventType::OperationStatus) => "VerifyOperationStatus",
            Ok(EventType::QueryStatus) => "VerifyQueryStatus",
            _ => return false,
        };
        step != self.method
    }
}

fn verifier(signers: &[String], required: usize, owner: Address) -> Option<Verifier> {
    let addresses = signers.iter().map(|signer| signer.parse()).collect::<Result<Vec<Address>, _>>().ok()?;
    Some(Verifier::new(SignerSet::new(addresses, required).ok()?, owner))
}

/// `None` if the record has no readable offset and is therefore never verified.
fn verdict(verifier: &Verifier, json: Bytes) -> Option<Verdict> {
    RawEvent::locate(json).map(|raw| verifier.verify(raw))
}

fn is_verified(verifier: &Verifier, json: Bytes) -> bool {
    matches!(verdict(verifier, json), Some(Verdict::Verified(_)))
}

#[test]
fn verdicts_match_the_reference_or_are_stricter_for_a_reason() {
    let verdicts = Verdicts::read();
    assert_eq!(verdicts.cases.len(), 405);
    let stricter = BTreeMap::from(STRICTER);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for case in verdicts.cases.iter().filter(|case| case.stage != "config" && !case.asks_for_another_step()) {
        let verdict = verdicts.verifier(&case.config).and_then(|verifier| verdict(&verifier, case.bytes()));
        let accepted = matches!(verdict, Some(Verdict::Verified(_)));
        let listed = stricter.contains_key(case.name.as_str());
        seen += usize::from(listed);
        let right = match (case.verified, case.must_accept) {
            (false, _) => !accepted,
            (true, true) => accepted,
            (true, false) => accepted != listed,
        };
        if !right || (listed && !case.verified) {
            let why = verdict.map(|verdict| match verdict {
                Verdict::Rejected(_, reason) => reason.to_string(),
                other => other.name().to_owned(),
            });
            wrong.push(format!("{} (must_accept {}): {why:?}", case.name, case.must_accept));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(seen, STRICTER.len(), "every name in the table is a case");
}

/// Formats a verdict: the counted signatures, or the reason for the rejection.
fn told(verdict: Option<Verdict>) -> String {
    match verdict {
        Some(Verdict::Verified(event)) => format!("{:?}", event.proof()),
        Some(Verdict::Rejected(_, reason)) => format!("{reason:?}"),
        other => format!("{:?}", other.as_ref().map(Verdict::name)),
    }
}

/// The first round recovers keys. In each later round more signers are known.
#[test]
fn verdicts_are_the_same_with_known_signers() {
    let verdicts = Verdicts::read();
    let verifiers = verdicts.cases.iter().filter_map(|case| Some((verdicts.verifier(&case.config)?, case.bytes())));
    let verifiers: Vec<_> = verifiers.collect();
    let round =
        || -> Vec<_> { verifiers.iter().map(|(verifier, json)| told(verdict(verifier, json.clone()))).collect() };
    let first = round();
    let mut prepared = 0;
    for _ in 0..3 {
        prepared += verifiers.iter().filter(|(verifier, _)| verifier.wants_preparing()).count();
        for (verifier, _) in &verifiers {
            verifier.prepare();
        }
        assert_eq!(round(), first);
    }
    assert!(prepared > 0 || !cfg!(feature = "fast"), "no signer was seen often enough");
}

#[test]
fn a_configuration_that_the_reference_refuses_is_refused() {
    let verdicts = Verdicts::read();
    let refused: Vec<_> = verdicts.cases.iter().filter(|case| case.stage == "config").collect();
    assert_eq!(refused.len(), 9);
    for case in refused {
        assert!(verdicts.verifier(&case.config).is_none(), "{}", case.name);
    }
}

#[test]
fn workflow_owners_are_derived_as_the_reference_derives_them() {
    let owners = Verdicts::read().workflow_owners;
    assert_eq!(owners.len(), 40);
    for Derivation { org_id, tenant_id, owner } in owners {
        assert_eq!(workflow_owner(&org_id, &tenant_id), owner.parse().unwrap(), "{org_id:?} {tenant_id:?}");
    }
}

#[test]
fn a_proof_of_a_real_network_verifies() {
    let recorded: RecordedVerdicts = serde_json::from_str(RECORDED).unwrap();
    let owner = recorded.workflow_owner.parse().unwrap();
    let verifier = verifier(&recorded.signers, recorded.min_required, owner).unwrap();
    let Some(Verdict::Verified(event)) = verdict(&verifier, recorded.event.to_string().into()) else {
        panic!("the recorded proof is not valid");
    };
    let signers: Vec<Address> = recorded.signers.iter().map(|signer| signer.parse().unwrap()).collect();
    assert!(event.proof().signers.iter().all(|signer| signers.contains(signer)));
    assert_eq!(event.proof().workflow_owner, owner);
    assert!(event.event().unknown.is_empty(), "this version knows everything in an event of the real service");
}

#[test]
fn no_flipped_byte_of_a_proof_or_of_the_signed_text_is_accepted() {
    let recorded: RecordedVerdicts = serde_json::from_str(RECORDED).unwrap();
    let verifier =
        verifier(&recorded.signers, recorded.min_required, recorded.workflow_owner.parse().unwrap()).unwrap();
    let proof = "/headers/proofs/0";
    let signatures = (0..recorded.min_required).map(|index| format!("{proof}/signatures/{index}"));
    let parts = signatures.chain([format!("{proof}/ocr_report"), format!("{proof}/ocr_context")]);
    let parts: Vec<_> = parts.collect();

    refuses_every_flip(&verifier, &recorded.event, &parts);
    while cfg!(feature = "fast") && !verifier.wants_preparing() {
        assert!(is_verified(&verifier, recorded.event.to_string().into()));
    }
    verifier.prepare();
    refuses_every_flip(&verifier, &recorded.event, &parts);
}

fn refuses_every_flip(verifier: &Verifier, event: &Value, parts: &[String]) {
    for part in parts {
        let text = event.pointer(part).and_then(Value::as_str).unwrap();
        let bytes = hex::decode(text.strip_prefix("0x").unwrap()).unwrap();
        for flipped in flips(&bytes) {
            refuses(verifier, event, part, &format!("0x{}", hex::encode(flipped)));
        }
    }
    let part = "/payload/verifiable_event";
    let text = event.pointer(part).and_then(Value::as_str).unwrap();
    for flipped in flips(text.as_bytes()) {
        refuses(verifier, event, part, &String::from_utf8_lossy(&flipped));
    }
}

/// Returns a copy of the bytes for each byte and each of three ways to flip its bits.
fn flips(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let places = (0..bytes.len()).flat_map(|at| [(at, 0x01), (at, 0x80), (at, 0xff)]);
    places.map(|(at, bits)| {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= bits;
        flipped
    })
}

fn refuses(verifier: &Verifier, event: &Value, part: &str, text: &str) {
    let mut event = event.clone();
    *event.pointer_mut(part).unwrap() = text.into();
    assert!(!is_verified(verifier, event.to_string().into()), "{part} {text}");
}
