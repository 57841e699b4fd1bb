//! What a daemon is held against: the same events verified by nothing else, and by libsecp256k1.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use channeld::api::Page;
use channeld::verify::{Address, Verdict, Verifier, event_hash, keccak256, signed_digest};
use secp256k1::Message;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use serde::Deserialize;

/// Events a second that the service's Go SDK verifies on one core, by libsecp256k1: measured where it can be run.
pub(crate) const GO_VERIFIES: f64 = 4900.0;

/// Events a second that its documented loop moves there, from poll to persisted offset.
pub(crate) const GO_LOOP: f64 = 4330.0;

/// Events a second that reading the pages and judging their events allow on so many cores, with nothing else to do.
pub(crate) fn alone(pages: &[Bytes], verifier: &Verifier, cores: usize) -> f64 {
    let (next, verified) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(body) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            verified.fetch_add(judged(body, verifier), Ordering::Relaxed);
        }
    };
    let started = Instant::now();
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    verified.into_inner() as f64 / started.elapsed().as_secs_f64()
}

fn judged(body: &Bytes, verifier: &Verifier) -> usize {
    let page = Page::read(body).unwrap();
    let events = page.events.len();
    let verified = |raw| matches!(verifier.judge(raw), Verdict::Verified(_));
    let held = page.events.into_iter().filter(|raw| verified(raw.clone())).count();
    assert_eq!(held, events, "the simulator is honest unless it is told otherwise");
    held
}

#[derive(Deserialize)]
struct Polled<'a> {
    #[serde(borrow)]
    events: Vec<Event<'a>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    headers: Headers<'a>,
    #[serde(borrow)]
    payload: Payload<'a>,
}

#[derive(Deserialize)]
struct Headers<'a> {
    #[serde(borrow)]
    proofs: Vec<Proof<'a>>,
}

#[derive(Deserialize)]
struct Proof<'a> {
    ocr_report: &'a str,
    ocr_context: &'a str,
    signatures: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(alias = "verifiable_result")]
    verifiable_event: &'a str,
}

/// Events a second that one core reads, hashes, and checks by recovering each key with libsecp256k1.
pub(crate) fn by_recovery(pages: &[Bytes], signers: &[Address]) -> f64 {
    let signers: HashSet<_> = signers.iter().copied().collect();
    let (mut events, started) = (0_u32, Instant::now());
    for body in pages {
        let page: Polled<'_> = serde_json::from_slice(body).unwrap();
        for event in &page.events {
            check(event, &signers);
            events += 1;
        }
    }
    f64::from(events) / started.elapsed().as_secs_f64()
}

fn check(event: &Event<'_>, signers: &HashSet<Address>) {
    let proof = &event.headers.proofs[0];
    let [report, context] = [proof.ocr_report, proof.ocr_context].map(bytes_of);
    assert!(report.ends_with(&event_hash(event.payload.verifiable_event).0));
    let digest = Message::from_digest(signed_digest(&report, &context).0);
    for signature in &proof.signatures {
        let bytes = bytes_of(signature);
        let recovery = RecoveryId::try_from(i32::from(bytes[64])).unwrap();
        let key = RecoverableSignature::from_compact(&bytes[..64], recovery).unwrap().recover(digest).unwrap();
        let hash = keccak256([&key.serialize_uncompressed()[1..]]);
        let mut address = [0; 20];
        address.copy_from_slice(&hash.0[12..]);
        assert!(signers.contains(&Address(address)));
    }
}

fn bytes_of(text: &str) -> Vec<u8> {
    hex::decode(text.trim_start_matches("0x")).unwrap()
}
