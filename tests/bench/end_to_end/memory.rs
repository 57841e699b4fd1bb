//! Whether memory stays flat, no matter how large the backlog of a channel is.
//!
//! The service signs events only when they are read, because a million records would not fit into memory. Speed is not
//! measured: most of the time is spent in the service.

use std::time::{Duration, Instant};

use super::daemon::Place;
use super::delivered::must_be_whole;
use super::process::Cost;
use super::service::Service;
use super::table::{Table, figure, mebibytes};

/// The size of the small backlog.
const NEAR: u64 = 10_000;

/// The wait before the second measurement, after the daemon has caught up.
const SETTLING: Duration = Duration::from_secs(10);

pub(crate) fn run(far: u64, until: Option<u64>) {
    let near = read(NEAR, NEAR);
    let started = Instant::now();
    let until = until.unwrap_or(far);
    let distant = read(far, until);
    let took = started.elapsed().as_secs_f64();
    let (near_events, far_events, until) = (figure(NEAR as f64), figure(far as f64), figure(until as f64));
    let mut table =
        Table::of_figures(&format!("memory: one channel, {near_events} and {far_events} events behind ({took:.0} s)"));
    table.figure(&format!("peak MiB resident, {near_events} behind"), mebibytes(near.0.peak), "48 or less");
    table.figure(
        &format!("peak MiB resident, {far_events} behind, {until} read"),
        mebibytes(distant.0.peak),
        "48 or less",
    );
    table.figure("  ratio", mebibytes(distant.0.peak) / mebibytes(near.0.peak), "0.90 to 1.10");
    table.figure(&format!("settled MiB resident, {near_events} behind"), mebibytes(near.1.resident), "");
    table.figure(&format!("settled MiB resident, {far_events} behind"), mebibytes(distant.1.resident), "");
    table.print();
}

/// Returns the cost right after reading, and some time later.
fn read(events: u64, until: u64) -> (Cost, Cost) {
    eprintln!("memory: {events} events behind");
    let service = Service::start(&["--events", &events.to_string()]);
    let place = Place::new(service.known(), usize::MAX, &[]);
    let mut daemon = place.start();
    daemon.until_recorded(until);
    let read = daemon.cost();
    if until == events {
        std::thread::sleep(SETTLING);
    }
    let settled = daemon.cost();
    daemon.stop();
    must_be_whole(&place.events(0), 1, place.recorded());
    (read, settled)
}
