//! The same check as `Verifier::judge`, by libsecp256k1.

use std::hint::black_box;

use channeld::event::{Event, Proofs, RawEvent};
use channeld::verify::{Address, Hash, Report, event_hash, keccak256, signed_digest};
use secp256k1::Message;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};

use super::network::{Network, REQUIRED, owner};

/// Counts the members that signed, up to the threshold.
pub(crate) fn check(network: &Network) -> Box<dyn Fn(&RawEvent)> {
    let members = network.addresses();
    Box::new(move |event| {
        let (digest, signatures) = read(event);
        let mut found = Vec::with_capacity(REQUIRED);
        for signature in &signatures {
            let id = RecoveryId::try_from(i32::from(signature[64])).expect("a signature ends in a recovery id");
            let signature = RecoverableSignature::from_compact(&signature[..64], id).expect("it is a signature");
            let key = signature.recover_ecdsa(Message::from_digest(digest.0)).expect("a key signed");
            let signer = address_of(&key.serialize_uncompressed());
            if members.contains(&signer) && !found.contains(&signer) {
                found.push(signer);
            }
        }
        assert_eq!(black_box(found).len(), REQUIRED);
    })
}

/// All of it but the recovery.
pub(crate) fn without_signatures() -> Box<dyn Fn(&RawEvent)> {
    Box::new(|event| {
        black_box(read(event));
    })
}

/// What was signed, and the signatures.
fn read(event: &RawEvent) -> (Hash, Vec<Vec<u8>>) {
    let event = Event::parse(event.json.clone()).expect("it is well-formed");
    let Proofs::One(ocr) = &event.proofs else { panic!("it has a proof") };
    let (report, context) = (bytes_of(&ocr.report), bytes_of(&ocr.context));
    let parsed = Report::parse(&report).expect("the report is long enough");
    assert_eq!(parsed.workflow_owner, owner());
    assert_eq!(parsed.payload, event_hash(event.payload.signed.as_deref().expect("something is signed")).0);
    let signatures = ocr.signatures.iter().flatten().map(|text| bytes_of(text)).collect();
    (signed_digest(&report, &context), signatures)
}

fn bytes_of(text: &str) -> Vec<u8> {
    hex::decode(&text[2..]).expect("it is hex")
}

fn address_of(key: &[u8; 65]) -> Address {
    let Hash(hash) = keccak256([&key[1..]]);
    let mut address = [0; 20];
    address.copy_from_slice(&hash[12..]);
    Address(address)
}
