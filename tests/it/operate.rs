//! What an operator sees and changes, whether or not a daemon runs.

use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

mod cursors;
mod dead_letters;
mod pauses;
mod quarantine;
mod redeliver;
mod socket;

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const LATE: EventSpec = EventSpec::Late(Kind::WatcherEvent);
const FORGED: EventSpec = EventSpec::Forged(Tampering::ContentChanged);

/// A service with one channel of these events.
async fn service(specs: &[EventSpec]) -> Simulator {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in specs {
        simulator.publish_one(0, *spec);
    }
    simulator
}
