//! Nothing unverified is delivered as verified.

use simulator::{EventSpec, Kind};

mod belonging;
mod duplicate_proofs;
mod late_proofs;
mod two_channels;
mod verdicts;

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const LATE: EventSpec = EventSpec::Late(Kind::WatcherEvent);
