//! A report with its proof: the verifier, which knows its signers, agrees with k256, which recovers each key.
//!
//! The first byte is the threshold. Each following group of four bytes makes one signature: the key that signs, the byte of
//! the signature that is changed, the change, and the form of `v`. The remaining bytes are the report's payload.

#![no_main]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k256::ecdsa::{RecoveryId, Signature, SigningKey, VerifyingKey};
use libfuzzer_sys::fuzz_target;
use proof::event::RawEvent;
use proof::verify::{Address, SignerSet, Verdict, Verifier, event_hash, keccak256, signed_digest};

/// The members of the set; the other keys are strangers.
const MEMBERS: usize = 7;
const SIGNATURES: usize = 6;
const OWNER: Address = Address([2; 20]);
const CONTEXT: [u8; 96] = [3; 96];

static KEYS: LazyLock<Vec<SigningKey>> =
    LazyLock::new(|| (1..=10).map(|number| SigningKey::from_slice(&[number; 32]).unwrap()).collect());

/// One verifier for each threshold. They are prepared as soon as their signers have signed often enough.
static VERIFIERS: LazyLock<Vec<Verifier>> = LazyLock::new(|| {
    let members: Vec<_> = KEYS[..MEMBERS].iter().map(|key| address(key.verifying_key())).collect();
    (1..=4).map(|required| Verifier::new(SignerSet::new(members.clone(), required).unwrap(), OWNER)).collect()
});

fn address(key: &VerifyingKey) -> Address {
    let hash = keccak256([&key.to_sec1_point(false).as_bytes()[1..]]);
    Address(hash.0[12..].try_into().unwrap())
}

/// The verdict of k256 alone.
fn is_valid(digest: &[u8; 32], signatures: &[[u8; 65]], required: usize) -> bool {
    let members: Vec<_> = KEYS[..MEMBERS].iter().map(|key| address(key.verifying_key())).collect();
    let mut signers = Vec::new();
    for signature in signatures {
        if signers.len() == required {
            break;
        }
        let v = match signature[64] {
            v @ (0 | 1) => v,
            v @ (27 | 28) => v - 27,
            _ => return false,
        };
        let Ok(parsed) = Signature::from_slice(&signature[..64]) else { return false };
        let id = RecoveryId::from_byte(v).unwrap();
        let Ok(key) = VerifyingKey::recover_from_prehash(digest, &parsed, id) else { return false };
        let signer = address(&key);
        if members.contains(&signer) && !signers.contains(&signer) {
            signers.push(signer);
        }
    }
    signers.len() == required
}

fuzz_target!(|data: &[u8]| {
    let Some((threshold, rest)) = data.split_first() else { return };
    let verifier = &VERIFIERS[usize::from(*threshold) % VERIFIERS.len()];
    let required = usize::from(*threshold) % VERIFIERS.len() + 1;
    let specified = rest.len().min(4 * SIGNATURES) / 4 * 4;
    let (specified, content) = rest.split_at(specified);

    let signed = STANDARD.encode(content);
    let mut report = vec![1; 109];
    report[87..107].copy_from_slice(&OWNER.0);
    report.extend_from_slice(&event_hash(&signed).0);
    let digest = signed_digest(&report, &CONTEXT).0;
    let signatures: Vec<[u8; 65]> = specified
        .chunks_exact(4)
        .map(|part| {
            let (signature, id) = KEYS[usize::from(part[0]) % KEYS.len()].sign_prehash_recoverable(&digest);
            let mut bytes = [0; 65];
            bytes[..64].copy_from_slice(&signature.to_bytes());
            bytes[64] = id.to_byte() + if part[3] % 2 == 0 { 0 } else { 27 };
            bytes[usize::from(part[1]) % 65] ^= if part[3] < 128 { 0 } else { part[2] };
            bytes
        })
        .collect();

    let texts: Vec<_> = signatures.iter().map(|signature| format!("0x{}", hex::encode(signature))).collect();
    let event = serde_json::json!({
        "event_id": "d290f1ee-6c54-4b01-90e6-d701748f0851",
        "headers": {"type": "watcher.event", "offset": 5, "proofs": [{
            "alg": "a", "ocr_report": format!("0x{}", hex::encode(&report)),
            "ocr_context": format!("0x{}", hex::encode(CONTEXT)), "signatures": texts,
        }]},
        "payload": {"verifiable_event": signed},
    });
    let raw = RawEvent::locate(event.to_string().into()).unwrap();
    let is_verified = matches!(verifier.verify(raw), Verdict::Verified(_));
    if verifier.wants_preparing() {
        verifier.prepare();
    }
    let expected = !content.is_empty() && is_valid(&digest, &signatures, required);
    assert_eq!(is_verified, expected, "threshold {required}: {event}");
});
