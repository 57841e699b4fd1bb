//! The cost of many idle channels with the default waits: channels without events, and a service that answers every poll with the
//! empty page.

use std::time::{Duration, Instant};

use simulator::Options;
use uuid::Uuid;

use super::daemon::{Daemon, Place, probe};
use super::empty_service::EmptyService;
use super::service::{Hosted, Known};
use super::table::{Samples, Table, figure, kibibytes, mebibytes};

/// The longest time until the daemon is ready.
const PATIENCE: Duration = Duration::from_secs(120);

/// The wait before the measurement. It contains a few polls of each channel.
const SETTLING: Duration = Duration::from_secs(20);

/// The interval for counting polls, and between two probes before the daemon is ready. Each probe costs the daemon several
/// milliseconds, so more frequent probes would delay the start.
const BUCKET: Duration = Duration::from_millis(100);

pub(crate) fn run(channels: usize, time: Duration) {
    eprintln!("idle: {channels} channels for {} s", time.as_secs());
    let one = Measured::of(1, Duration::from_secs(1), Duration::ZERO);
    let many = Measured::of(channels, time, SETTLING);
    let Measured { cpu, polls, .. } = &many;
    let percent = cpu.as_secs_f64() / many.took.as_secs_f64() * 100.0;
    let each = many.resident.saturating_sub(one.resident) / (channels as u64 - 1).max(1);
    let title = format!("idle: {} channels without events, default waits", figure(channels as f64));
    let mut table = Table::of_figures(&title);
    table.figure("% of one core", percent, "12 or less, for 10,000 channels");
    table.figure("  µs a poll", cpu.as_secs_f64() * 1e6 / polls.sum(), "");
    table.figure("MiB resident", mebibytes(many.resident), "300 or less");
    table.figure("  KiB a channel, beyond a daemon with one channel", kibibytes(each), "");
    table.figure("MiB resident, peak", mebibytes(many.peak), "");
    table.figure("s from start until ready", many.ready.as_secs_f64(), "5 or less");
    table.figure("s from SIGTERM until ended", many.stopped.as_secs_f64(), "1 or less");
    table.figure("polls a second", polls.sum() / many.took.as_secs_f64(), "");
    table.figure("polls in 100 ms, mean", polls.mean(), "");
    table.figure("  the most, to the mean", polls.at(1.0) / polls.mean(), "");
    table.figure("connections to the service", many.connections as f64, "");
    table.print();
}

struct Measured {
    /// The cost during the measurement.
    cpu: Duration,
    took: Duration,
    /// The number of polls in each [`BUCKET`].
    polls: Samples,
    resident: u64,
    peak: u64,
    ready: Duration,
    stopped: Duration,
    connections: usize,
}

impl Measured {
    fn of(channels: usize, time: Duration, settling: Duration) -> Self {
        let service = EmptyService::start();
        let place = Place::new(&known(channels, &service), usize::MAX, &[]);
        let (mut daemon, started) = (place.start(), Instant::now());
        until_ready(&place, &mut daemon);
        let ready = started.elapsed();
        assert!(service.polls() >= channels as u64, "a channel is ready although it was not polled");

        std::thread::sleep(settling);
        let (before, began) = (daemon.cost(), Instant::now());
        let polls = polls(&service, &mut daemon, time);
        let (after, took) = (daemon.cost(), began.elapsed());
        let connections = service.connections();
        let stopping = Instant::now();
        daemon.stop();
        Self {
            cpu: after.cpu.saturating_sub(before.cpu),
            took,
            polls,
            resident: after.resident,
            peak: after.peak,
            ready,
            stopped: stopping.elapsed(),
            connections,
        }
    }
}

/// The channels of the service, with valid signers.
fn known(channels: usize, service: &EmptyService) -> Known {
    let simulated = Hosted::start(Options::default());
    let id = |number: usize| Uuid::new_v5(&Uuid::NAMESPACE_OID, &number.to_be_bytes()).to_string();
    let channels = (0..channels).map(id).collect();
    Known { base_url: service.base_url(), channels, ..simulated.known().clone() }
}

/// Waits until `/readyz` answers with 200.
fn until_ready(place: &Place, daemon: &mut Daemon<'_>) {
    let (began, mut admin) = (Instant::now(), None);
    loop {
        admin = admin.or_else(|| place.admin());
        if admin.is_some_and(|admin| probe(admin, "/readyz").is_ok_and(|is_ready| is_ready)) {
            return;
        }
        daemon.must_run();
        assert!(began.elapsed() < PATIENCE, "not ready after {PATIENCE:?}");
        std::thread::sleep(BUCKET);
    }
}

/// The number of polls in each interval.
fn polls(service: &EmptyService, daemon: &mut Daemon<'_>, time: Duration) -> Samples {
    let (began, mut seen, mut polls) = (Instant::now(), service.polls(), Samples::default());
    let mut due = began + BUCKET;
    while due <= began + time {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = service.polls();
        polls.push((now - seen) as f64);
        (seen, due) = (now, due + BUCKET);
        daemon.must_run();
    }
    polls
}
