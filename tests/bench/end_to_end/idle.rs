//! The cost of many idle channels with the default waits.
//!
//! The channels catch up first, and then the daemon is restarted. Only the second daemon is measured: it has state and
//! nothing to deliver, and its allocator does not keep memory from catching up.

use std::time::{Duration, Instant};

use simulator::Options;

use super::daemon::{Daemon, LOOK_AGAIN, Place};
use super::delivered::must_be_whole;
use super::service::{Hosted, Known};
use super::table::{Samples, Table, figure, mebibytes};

/// The number of events that each channel has delivered before.
const EVENTS: u64 = 3;

/// The wait before each measurement.
const SETTLING: Duration = Duration::from_secs(10);

/// The interval for counting polls.
const BUCKET: Duration = Duration::from_millis(100);

pub(crate) fn run(channels: usize, time: Duration) {
    eprintln!("idle: {channels} channels for {} s", time.as_secs());
    let service = Hosted::start(Options { channels, events: EVENTS, prepared: true, ..Options::default() });
    let place = Place::new(service.known(), usize::MAX, &[]);
    let (mut daemon, started) = (place.start(), Instant::now());
    daemon.until_recorded(EVENTS * channels as u64);
    let caught_up = started.elapsed();
    std::thread::sleep(SETTLING);
    let has_caught_up = daemon.cost();
    daemon.stop();

    let asked = service.simulator.requests().poll;
    let mut daemon = place.start();
    while service.simulator.requests().poll < asked + channels as u64 {
        daemon.must_run();
        std::thread::sleep(LOOK_AGAIN);
    }
    std::thread::sleep(SETTLING);
    let (before, began) = (daemon.cost(), Instant::now());
    let polls = polls(&service, &mut daemon, time);
    let (after, took) = (daemon.cost(), began.elapsed());
    let connections = connections(service.known());
    daemon.stop();
    must_be_whole(&place.events(0), channels, EVENTS);

    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64() / took.as_secs_f64() * 100.0;
    let polled: f64 = polls.sum();
    let mean = polls.mean();
    let mut table = Table::of_figures(&format!("idle: {} channels, caught up, default waits", figure(channels as f64)));
    table.figure("% of one core", cpu, "3 or less");
    table.figure("  µs a poll", cpu * 1e4 * took.as_secs_f64() / polled, "");
    table.figure("MiB resident", mebibytes(after.resident), "120 or less");
    table.figure("MiB resident, peak", mebibytes(after.peak), "");
    table.figure("MiB resident, after catching up", mebibytes(has_caught_up.resident), "");
    table.figure("polls a second", polled / took.as_secs_f64(), "");
    table.figure("polls in 100 ms, mean", mean, "");
    table.figure("  the most", polls.at(1.0), "");
    table.figure("  the most, to the mean", polls.at(1.0) / mean, "");
    table.figure("connections to the service", connections as f64, "");
    table.figure("s from start until all had caught up", caught_up.as_secs_f64(), "");
    table.print();
}

/// The number of polls in each interval.
fn polls(service: &Hosted, daemon: &mut Daemon<'_>, time: Duration) -> Samples {
    let (began, mut seen, mut polls) = (Instant::now(), service.simulator.requests().poll, Samples::default());
    let mut due = began + BUCKET;
    while due <= began + time {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = service.simulator.requests().poll;
        polls.push((now - seen) as f64);
        (seen, due) = (now, due + BUCKET);
        daemon.must_run();
    }
    polls
}

/// The number of connections to the service, from `/proc/net/tcp`. Its columns are: number, local address, remote
/// address, state.
fn connections(known: &Known) -> usize {
    const ESTABLISHED: &str = "01";
    let (port, table) = (format!(":{:04X}", known.port()), std::fs::read_to_string("/proc/net/tcp").unwrap());
    let of_the_service = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().take(4).collect();
        matches!(&*fields, [_, local, _, state] if local.ends_with(&port) && *state == ESTABLISHED)
    };
    table.lines().filter(of_the_service).count()
}
