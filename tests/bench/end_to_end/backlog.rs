//! How fast a backlog becomes durable, and what an event of it costs.
//!
//! The clock runs from the start of the daemon's process until its durable cursor is at the last event, so that its
//! start-up counts. What it is held against is measured between its runs: verification alone, over pages in memory and on
//! every core, and what libsecp256k1 takes for the same events. The service's Go SDK, which is built on that, cannot be
//! run here: its loop is scaled from what is known of it, by the share of its time that is not verification. It reads JSON
//! at a higher price than the yardstick does, so that the scaled loop is rather too fast than too slow.

use std::time::{Duration, Instant};

use super::daemon::Place;
use super::delivered::must_be_whole;
use super::machine::cores;
use super::process::Cost;
use super::service::Service;
use super::table::{Samples, Table, figure, mebibytes, micros};
use super::yardstick::{GO_LOOP, GO_VERIFIES, alone, by_recovery};

/// So many events are enough for a yardstick: they fit into memory, and take a second or two.
const YARDSTICK_EVENTS: u32 = 10_000;

/// What a run of the daemon took.
struct Run {
    wall: Duration,
    daemon: Cost,
    service_cpu: Duration,
}

/// Every run's figures.
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

pub(crate) fn run(events: u32, runs: usize) {
    eprintln!("backlog: {events} events are made and signed beforehand");
    let service = Service::start(&["--events", &events.to_string(), "--prepared"]);
    let pages = service.known().pages(0, YARDSTICK_EVENTS.min(events)).collect::<Vec<_>>();
    let (verifier, signers) = (service.known().verifier(), service.known().signers());
    let mut figures = Figures::default();
    // The daemon gets to know the signers in its first hundred events.
    alone(&pages, &verifier, cores());
    for number in 1..=runs {
        let (alone, recovery) = (alone(&pages, &verifier, cores()), by_recovery(&pages, &signers));
        figures.alone.push(alone.rate);
        figures.alone_cpu.push(alone.cpu);
        figures.recovery.push(recovery.rate);
        figures.recovery_cpu.push(recovery.cpu);
        figures.add(&read(&service, events), events);
        eprintln!("backlog: run {number} of {runs}");
    }
    figures.print(events, runs);
}

fn read(service: &Service, events: u32) -> Run {
    let place = Place::new(service.known(), 1, &[]);
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

    fn print(&self, events: u32, runs: usize) {
        let scaled = self.recovery.map(|rate| rate * GO_LOOP / GO_VERIFIES);
        let ratio = |one: f64, other: f64| one / other;
        let events = figure(events.into());
        let mut table = Table::of_runs(&format!("backlog: {events} events behind, to a file, {runs} runs"));
        table.runs("events/s, from start to durable", &self.rate, "13,000");
        table.runs("events/s, parsing and verification alone, all cores", &self.alone, "");
        table.runs("  ratio", &self.rate.zip(&self.alone, ratio), "0.70 or more");
        table.add(&["events/s, Go SDK's loop, as it is known", &figure(GO_LOOP), "", ""]);
        table.runs("  ratio", &self.rate.map(|rate| rate / GO_LOOP), "3 or more");
        table.runs("events/s, libsecp256k1, one core", &self.recovery, "");
        table.runs("events/s, Go SDK's loop, scaled to it", &scaled, "");
        table.runs("  ratio", &self.rate.zip(&scaled, ratio), "3 or more");
        table.runs("CPU µs an event", &self.cpu, "");
        table.runs("  of the Go SDK's loop as it is known", &self.cpu.map(|cpu| cpu * GO_LOOP / 1e6), "0.50 or less");
        let loop_cpu = self.recovery_cpu.map(|cpu| cpu * GO_VERIFIES / GO_LOOP);
        table.runs("  of the loop scaled to libsecp256k1's CPU", &self.cpu.zip(&loop_cpu, ratio), "0.50 or less");
        table.runs("CPU µs an event, parsing and verification alone", &self.alone_cpu, "");
        table.runs("  its share of the daemon's", &self.alone_cpu.zip(&self.cpu, ratio), "");
        table.runs("peak MiB resident", &self.peak, "48 or less");
        table.runs("CPU µs an event, simulated service", &self.service_cpu, "20 or less");
        table.print();
    }
}
