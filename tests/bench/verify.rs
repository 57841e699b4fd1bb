//! What it costs to check an event, on one core: `cargo bench --bench verify`.
//!
//! Events are the simulator's, of 2.7 kB, each with 4 signatures of 10 signers. The same check, that is parsing, hashing and
//! four signatures, is measured with keys recovered by libsecp256k1, the yardstick; with keys recovered by k256; and with
//! signers that are known, for networks that sign in one order or another.
//!
//! Criterion's figures come first. The table after them is of another measurement, in which the cases take turns, so that
//! a machine that is slower for a while is slower for all of them. Nothing is asserted.

use std::cell::RefCell;
use std::hint::black_box;

use channeld::event::RawEvent;
use channeld::verify::{SignerSet, Sitting, Verdict, Verifier};
use criterion::Criterion;

#[path = "verify/network.rs"]
mod network;
#[path = "verify/table.rs"]
mod table;
#[path = "verify/yardstick.rs"]
mod yardstick;

use network::{Network, Order, REQUIRED};

/// Events of a case. They are checked over and over.
const EVENTS: usize = 600;

/// One way of checking, and what it checks.
struct Case {
    name: &'static str,
    check: Box<dyn Fn(&RawEvent)>,
    events: Vec<RawEvent>,
}

fn main() {
    let cases = cases();
    let mut criterion = Criterion::default().configure_from_args();
    for case in &cases {
        let mut events = case.events.iter().cycle();
        let mut check = || events.next().map(&case.check);
        criterion.bench_function(case.name, |bencher| bencher.iter(&mut check));
    }
    criterion.final_summary();
    table::print(&cases);
}

/// The first two are what the others are compared with.
fn cases() -> Vec<Case> {
    let templates = network::templates(EVENTS);
    let plain = Network::new(0);
    let events = plain.events(&templates, Order::Fixed);
    let recovering = verifier(&plain);
    vec![
        Case { name: "libsecp256k1 recovers", check: yardstick::check(&plain), events: events.clone() },
        Case { name: "k256 recovers", check: judge(recovering), events: events.clone() },
        Case { name: "no signatures: parsed, hashed", check: yardstick::without_signatures(), events },
        known("known, the same four", 1, &templates, Order::Fixed),
        known("known, four in a row, turning", 2, &templates, Order::Turning),
        known("known, any four, ascending", 3, &templates, Order::Ascending),
        known("known, any four, shuffled", 4, &templates, Order::Shuffled),
        known("known, another order every 20", 5, &templates, Order::Changing),
        known("known, always the least likely", 6, &templates, Order::Misleading),
    ]
}

/// A network whose signers have been seen often, and whose order has been learned as far as it can be.
fn known(name: &'static str, seed: u64, templates: &[network::Template], order: Order) -> Case {
    let network = Network::new(seed);
    let (events, verifier) = (network.events(templates, order), verifier(&network));
    let mut sitting = verifier.sitting();
    for event in events.iter().cycle().take(2 * EVENTS) {
        judged(&mut sitting, event);
        verifier.prepare();
    }
    Case { name, check: judge(verifier), events }
}

fn verifier(network: &Network) -> Verifier {
    let signers = SignerSet::new(network.addresses(), REQUIRED).expect("the network's signers are a signer set");
    Verifier::new(signers, network::owner())
}

/// In one sitting, which lasts as long as the program.
fn judge(verifier: Verifier) -> Box<dyn Fn(&RawEvent)> {
    let verifier: &'static Verifier = Box::leak(Box::new(verifier));
    let sitting = RefCell::new(verifier.sitting());
    Box::new(move |event| judged(&mut sitting.borrow_mut(), event))
}

fn judged(sitting: &mut Sitting<'_>, event: &RawEvent) {
    let verdict = black_box(sitting.judge(event.clone()));
    assert!(matches!(verdict, Verdict::Verified(_)), "what is measured must be the whole check: {verdict:?}");
}
