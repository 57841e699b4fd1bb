//! Operator commands work with a running and with a stopped daemon.

use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

mod cursors;
mod dead_letters;
mod pauses;
mod quarantine;
mod redeliver;
mod socket;
mod times;

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const LATE: EventSpec = EventSpec::Late(Kind::WatcherEvent);
const FORGED: EventSpec = EventSpec::Forged(Tampering::ContentChanged);

/// Starts a service with one channel that contains these events.
async fn service(specs: &[EventSpec]) -> Simulator {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in specs {
        simulator.publish_one(0, *spec);
    }
    simulator
}
