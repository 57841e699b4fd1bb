//! The time until the first request to the service, and the size of the program.

use std::time::{Duration, Instant};

use simulator::Options;

use super::daemon::Place;
use super::machine::binary;
use super::service::Hosted;
use super::table::{Table, figure, mebibytes};

/// The number of starts with and without state.
const STARTS: usize = 11;

/// The wait between two checks for a request.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

pub(crate) fn run() {
    eprintln!("startup: {STARTS} starts without state, and with some");
    let service = Hosted::start(Options { events: 10, ..Options::default() });
    let known = service.known();
    let fresh = (0..STARTS).map(|_| start(&service, &Place::new(known, 1, &[]))).collect();
    let place = Place::new(known, 1, &[]);
    start(&service, &place);
    let existing = (0..STARTS).map(|_| start(&service, &place)).collect();
    let mut table = Table::of_runs("start-up: one channel");
    table.runs("ms until the first poll, without state", &fresh, "100 or less");
    table.runs("ms until the first poll, with state", &existing, "100 or less");
    let size = std::fs::metadata(binary()).unwrap().len();
    table.add(&["MiB of the program, as it was built", &figure(mebibytes(size)), "", "15 or less, of a release"]);
    table.print();
}

/// Milliseconds from the start of the process until its first poll.
fn start(service: &Hosted, place: &Place) -> f64 {
    let polls = || service.simulator.requests().poll;
    let (before, started) = (polls(), Instant::now());
    let mut daemon = place.start();
    while polls() == before {
        daemon.must_run();
        std::thread::sleep(LOOK_AGAIN);
    }
    let took = started.elapsed();
    daemon.until_recorded(10);
    daemon.stop();
    took.as_secs_f64() * 1e3
}
