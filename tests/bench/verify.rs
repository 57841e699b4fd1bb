//! The cost of verifying an event on one core, for each way of signing: `cargo bench --bench verify`.
//!
//! The simulator creates events of 2.7 kB for networks of two sizes and every way of signing. The list of signers is
//! shuffled, because an operator can list them in any order. The yardstick is the time in which libsecp256k1 recovers
//! the keys of the same signatures. Both are measured alternately, in processor time. The benchmark only asserts that
//! every event is verified.

use std::hint::black_box;
use std::time::Duration;

use api::{Client, Settings};
use net::secret::Secret;
use nix::time::{ClockId, clock_gettime};
use proof::event::{Event, Offset, Proofs, RawEvent};
use proof::verify::{SignerSet, Verdict, Verifier, signed_digest};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use secp256k1::Message;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use simulator::{Options, Signing, Simulator};

/// The number of events per case.
const EVENTS: u32 = 2_000;

/// The number of events that are verified together. The daemon verifies shares of 50 to 100 events.
const TOGETHER: usize = 50;

const ROUNDS: usize = 5;

fn main() {
    // A client cannot be created without a crypto provider, even if it uses plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime starts");
    println!("{:<12} {:<10} {:>9} {:>14} {:>12}", "signers", "signing", "µs/event", "yardstick µs", "of yardstick");
    for (signers, required) in [(10, 4), (31, 11)] {
        for signing in [Signing::Network, Signing::Arrival, Signing::Rotating, Signing::Fixed] {
            let options = Options { events: EVENTS.into(), signers, required, signing, ..Options::default() };
            let (events, verifier) = runtime.block_on(simulated(options));
            let (ours, yardstick) = measure(&events, &verifier);
            let (of, name) = (ours / yardstick, format!("{required} of {signers}"));
            println!(
                "{name:<12} {:<10} {ours:>9.1} {yardstick:>14.1} {of:>12.2}",
                format!("{signing:?}").to_lowercase()
            );
        }
    }
}

/// The events of the simulator, and a verifier that has already seen its signers.
async fn simulated(options: Options) -> (Vec<RawEvent>, Verifier) {
    let simulator = Simulator::start(options).await.expect("the simulator listens");
    let known = simulator.announcement();
    let patience = Duration::from_secs(60);
    let client = Client::new(Settings {
        base_url: known.base_url.parse().expect("the simulator has an address"),
        account: api::AccountName::default(),
        api_keys: vec![Secret::new(known.api_key.clone())],
        connect_timeout: patience,
        request_timeout: patience,
    });
    let client = client.expect("a client can be made");
    let (mut events, mut last) = (Vec::new(), Offset::ZERO);
    while events.len() < EVENTS as usize {
        let page = client.poll(known.channels[0], Some(last), 200).await.expect("the simulator answers");
        last = page.events.first().expect("the page contains events").offset;
        events.extend(page.events);
    }
    let mut signers = known.valid_signers.clone();
    signers.shuffle(&mut StdRng::seed_from_u64(7));
    let signers = SignerSet::new(signers, known.min_required_signatures).expect("a signer set");
    let verifier = Verifier::new(signers, known.workflow_owner);
    for _ in 0..2 {
        verify(&events, &verifier);
        verifier.prepare();
    }
    (events, verifier)
}

/// Microseconds per event, for the verifier and for the yardstick.
fn measure(events: &[RawEvent], verifier: &Verifier) -> (f64, f64) {
    let signed: Vec<_> = events.iter().map(signatures).collect();
    let (mut ours, mut yardstick) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(micros(|| verify(events, verifier)));
        yardstick.push(micros(|| signed.iter().for_each(recover)));
    }
    (median(ours), median(yardstick))
}

fn verify(events: &[RawEvent], verifier: &Verifier) {
    for events in events.chunks(TOGETHER) {
        let verdicts = black_box(verifier.verify_all(events.to_vec()));
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Verified(_))), "every event must verify");
    }
}

/// The signed digest of an event and its signatures.
fn signatures(event: &RawEvent) -> (Message, Vec<RecoverableSignature>) {
    let event = Event::parse(event.json.clone()).expect("it is well-formed");
    let Proofs::One(ocr) = &event.proofs else { panic!("it has a proof") };
    let bytes = |text: &str| hex::decode(&text[2..]).expect("it is hex");
    let digest = signed_digest(&bytes(&ocr.report), &bytes(&ocr.context));
    let signature = |text: &str| {
        let bytes = bytes(text);
        let recovery = RecoveryId::try_from(i32::from(bytes[64])).expect("a signature ends in a recovery id");
        RecoverableSignature::from_compact(&bytes[..64], recovery).expect("it is a signature")
    };
    (Message::from_digest(digest.0), ocr.signatures.iter().flatten().map(|text| signature(text)).collect())
}

fn recover((digest, signatures): &(Message, Vec<RecoverableSignature>)) {
    for signature in signatures {
        black_box(signature.recover_ecdsa(*digest).expect("a key signed"));
    }
}

/// Microseconds per event of this thread's processor time, so other processes do not count.
fn micros(work: impl FnOnce()) -> f64 {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread has a clock"));
    let began = now();
    work();
    now().saturating_sub(began).as_secs_f64() * 1e6 / f64::from(EVENTS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
