//! How fast a backlog becomes durable, and how much processor time each event takes.
//!
//! The time is measured from the start of the daemon's process until its durable cursor is at the last event, so it
//! includes the start-up. The yardstick is measured between the runs: libsecp256k1 recovers the keys of the same
//! signatures on every core, and nothing else runs. No client that recovers the keys of each event with libsecp256k1
//! can be faster. Every way of signing is measured, see `channeld simulate --signing`.

use std::time::{Duration, Instant};

use super::daemon::Place;
use super::delivered::must_be_whole;
use super::machine::cores;
use super::process::Cost;
use super::service::Service;
use super::table::{Samples, Table, figure, mebibytes, micros};
use super::yardstick::{alone, by_recovery};

/// The pages of this many events fit into memory, and the yardstick takes a second or two.
const YARDSTICK_EVENTS: u32 = 10_000;

/// The measurements of one run of the daemon.
struct Run {
    wall: Duration,
    daemon: Cost,
    service_cpu: Duration,
}

/// The figures of all runs.
#[derive(Default)]
struct Figures {
    rate: Samples,
    cpu: Samples,
    peak: Samples,
    service_cpu: Samples,
    alone: Samples,
    alone_cpu: Samples,
    recovery: Samples,
    recovery_cpu: Samples,
}

pub(crate) fn run(events: u32, runs: usize, signing: &[String]) {
    for signing in signing {
        eprintln!("backlog, {signing}: {events} events are made and signed beforehand");
        let service = Service::start(&["--events", &events.to_string(), "--prepared", "--signing", signing]);
        let pages = service.known().pages(0, YARDSTICK_EVENTS.min(events)).collect::<Vec<_>>();
        let verifier = service.known().verifier();
        let mut figures = Figures::default();
        // The verifier learns the signers first. The daemon does so within its first hundred events.
        alone(&pages, &verifier, cores());
        for number in 1..=runs {
            let (alone, recovery) = (alone(&pages, &verifier, cores()), by_recovery(&pages, cores()));
            figures.alone.push(alone.rate);
            figures.alone_cpu.push(alone.cpu);
            figures.recovery.push(recovery.rate);
            figures.recovery_cpu.push(recovery.cpu);
            figures.add(&read(&service, events), events);
            eprintln!("backlog, {signing}: run {number} of {runs}");
        }
        figures.print(signing, events, runs);
    }
}

fn read(service: &Service, events: u32) -> Run {
    let place = Place::new(service.known(), usize::MAX, &[]);
    let (before, started) = (service.cost(), Instant::now());
    let mut daemon = place.start();
    daemon.until_recorded(events.into());
    let wall = started.elapsed();
    let (daemon_cost, after) = (daemon.cost(), service.cost());
    daemon.stop();
    must_be_whole(&place.events(0), 1, events.into());
    Run { wall, daemon: daemon_cost, service_cpu: after.cpu.saturating_sub(before.cpu) }
}

impl Figures {
    fn add(&mut self, run: &Run, events: u32) {
        let events = f64::from(events);
        self.rate.push(events / run.wall.as_secs_f64());
        self.cpu.push(micros(run.daemon.cpu) / events);
        self.peak.push(mebibytes(run.daemon.peak));
        self.service_cpu.push(micros(run.service_cpu) / events);
    }

    fn print(&self, signing: &str, events: u32, runs: usize) {
        let ratio = |one: f64, other: f64| one / other;
        let events = figure(events.into());
        let mut table =
            Table::of_runs(&format!("backlog: {events} events behind, signed as {signing}, to a file, {runs} runs"));
        table.runs("events/s, from start to durable", &self.rate, "");
        table.runs("events/s, parsing and verification alone, all cores", &self.alone, "");
        table.runs("  ratio", &self.rate.zip(&self.alone, ratio), "0.70 or more");
        table.runs("events/s, libsecp256k1 recovering their keys, all cores", &self.recovery, "");
        table.runs("  ratio", &self.rate.zip(&self.recovery, ratio), "1.10 or more");
        table.runs("CPU µs an event", &self.cpu, "");
        table.runs("  of libsecp256k1's", &self.cpu.zip(&self.recovery_cpu, ratio), "0.90 or less");
        table.runs("CPU µs an event, parsing and verification alone", &self.alone_cpu, "");
        table.runs("  its share of the daemon's", &self.alone_cpu.zip(&self.cpu, ratio), "");
        table.runs("peak MiB resident", &self.peak, "48 or less");
        table.runs("CPU µs an event, simulated service", &self.service_cpu, "20 or less");
        table.print();
    }
}
