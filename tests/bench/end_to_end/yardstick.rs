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

use super::process::Cost;
use super::table::micros;

/// Events a second that the service's Go SDK verifies on one core, by libsecp256k1: measured where it can be run.
pub(crate) const GO_VERIFIES: f64 = 4900.0;

/// Events a second that its documented loop moves there, from poll to persisted offset.
pub(crate) const GO_LOOP: f64 = 4330.0;

/// What something takes.
pub(crate) struct Pace {
    /// Events a second.
    pub(crate) rate: f64,
    /// Microseconds of processor time an event: what a busy machine changes little.
    pub(crate) cpu: f64,
}

impl Pace {
    /// Of work that deals with so many events, while this process does nothing else.
    fn of(work: impl FnOnce() -> usize) -> Self {
        let cpu = || Cost::of(std::process::id()).cpu;
        let (before, started) = (cpu(), Instant::now());
        let events = work() as f64;
        let (wall, cpu) = (started.elapsed(), cpu().saturating_sub(before));
        Self { rate: events / wall.as_secs_f64(), cpu: micros(cpu) / events }
    }
}

/// What reading the pages and judging their events takes on so many cores, with nothing else to do.
pub(crate) fn alone(pages: &[Bytes], verifier: &Verifier, cores: usize) -> Pace {
    let (next, verified) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(body) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            verified.fetch_add(judged(body, verifier), Ordering::Relaxed);
        }
    };
    Pace::of(|| {
        std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        verified.load(Ordering::Relaxed)
    })
}

fn judged(body: &Bytes, verifier: &Verifier) -> usize {
    let page = Page::read(body).unwrap();
    let events = page.events.len();
    let mut sitting = verifier.sitting();
    let verdicts = page.events.into_iter().map(|raw| sitting.judge(raw));
    let held = verdicts.filter(|verdict| matches!(verdict, Verdict::Verified(_))).count();
    verifier.prepare();
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

/// What it takes one core to read, to hash, and to check by recovering each key with libsecp256k1.
pub(crate) fn by_recovery(pages: &[Bytes], signers: &[Address]) -> Pace {
    let signers: HashSet<_> = signers.iter().copied().collect();
    let read = |body: &Bytes| {
        let page: Polled<'_> = serde_json::from_slice(body).unwrap();
        page.events.iter().for_each(|event| check(event, &signers));
        page.events.len()
    };
    Pace::of(|| pages.iter().map(read).sum())
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
