//! Yardsticks for the daemon: verification of the same events without anything else, and recovery of their keys with
//! libsecp256k1.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use api::Page;
use bytes::Bytes;
use proof::event::{Event, Proofs, RawEvent};
use proof::verify::{Verdict, Verifier, signed_digest};
use secp256k1::Message;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};

use super::process::Cost;
use super::table::micros;

/// How fast some work is.
pub(crate) struct Pace {
    /// Events per second.
    pub(crate) rate: f64,
    /// Microseconds of processor time per event. Other processes have little influence on this value.
    pub(crate) cpu: f64,
}

impl Pace {
    /// Measures work that returns its number of events. This process must do nothing else meanwhile.
    fn of(work: impl FnOnce() -> usize) -> Self {
        let cpu = || Cost::of(std::process::id()).cpu;
        let (before, started) = (cpu(), Instant::now());
        let events = work() as f64;
        let (wall, cpu) = (started.elapsed(), cpu().saturating_sub(before));
        Self { rate: events / wall.as_secs_f64(), cpu: micros(cpu) / events }
    }
}

/// Reads the pages and verifies their events on this many cores.
pub(crate) fn alone(pages: &[Bytes], verifier: &Verifier, cores: usize) -> Pace {
    let (next, verified) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(body) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            verified.fetch_add(verified_of(body, verifier), Ordering::Relaxed);
        }
    };
    Pace::of(|| {
        std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        verified.load(Ordering::Relaxed)
    })
}

fn verified_of(body: &Bytes, verifier: &Verifier) -> usize {
    let page = Page::read(body).unwrap();
    let events = page.events.len();
    let verdicts = verifier.verify_all(page.events);
    let held = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Verified(_))).count();
    verifier.prepare();
    assert_eq!(held, events, "the simulator is honest unless it is told otherwise");
    held
}

/// Recovers the keys of the signatures on this many cores with libsecp256k1.
pub(crate) fn by_recovery(pages: &[Bytes], cores: usize) -> Pace {
    let signed: Vec<_> =
        pages.iter().flat_map(|body| Page::read(body).unwrap().events).map(|raw| signatures(&raw)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((digest, signatures)) = signed.get(next.fetch_add(1, Ordering::Relaxed)) {
            for signature in signatures {
                black_box(signature.recover_ecdsa(*digest)).unwrap();
            }
        }
    };
    Pace::of(|| {
        std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
        signed.len()
    })
}

/// The signed digest of an event and its signatures.
fn signatures(raw: &RawEvent) -> (Message, Vec<RecoverableSignature>) {
    let event = Event::parse(raw.json.clone()).unwrap();
    let Proofs::One(ocr) = &event.proofs else { panic!("the simulator proves its events") };
    let bytes = |text: &str| hex::decode(&text[2..]).unwrap();
    let digest = signed_digest(&bytes(&ocr.report), &bytes(&ocr.context));
    let signature = |text: &str| {
        let bytes = bytes(text);
        let recovery = RecoveryId::try_from(i32::from(bytes[64])).unwrap();
        RecoverableSignature::from_compact(&bytes[..64], recovery).unwrap()
    };
    (Message::from_digest(digest.0), ocr.signatures.iter().flatten().map(|text| signature(text)).collect())
}
