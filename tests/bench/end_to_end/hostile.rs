//! Whether one channel is delivered on time beside 999 channels that misbehave in every way, how much these cost, and how much
//! memory the daemon keeps after all channels have become healthy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use simulator::Options;

use super::daemon::{Daemon, Place, probe};
use super::latency::{Course, Wanted, millis};
use super::service::Hosted;
use super::table::{Samples, Table, figure, mebibytes};

/// The number of misbehaving channels. They take the ways to misbehave in turn.
const CROWD: usize = 999;

/// Events per second of the healthy channel.
const RATE: f64 = 5.0;

/// The number of events of each misbehaving channel.
const EVENTS: u64 = 1_000;

/// The wait between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// The expected peak is at most the sum of these: for pages and queues (`limits.memory` is 192 MiB by default), and for
/// the rest of the process.
const MEMORY_MIB: u64 = 256;
const REST_MIB: u64 = 64;

/// How long all channels are healthy before the memory is measured again.
const HEALING: Duration = Duration::from_secs(60);

/// How long a daemon runs that was started again, before its memory is measured. This daemon has the same state, but never had a
/// misbehaving channel.
const SETTLING: Duration = Duration::from_secs(30);

/// How much more memory the daemon may keep than the daemon that was started again.
const KEPT_MIB: f64 = 32.0;

pub(crate) fn run(wanted: Wanted) {
    eprintln!("hostile: {CROWD} channels misbehave for {} s", wanted.time.as_secs());
    let misbehave = vec![format!("1-{CROWD}:all").parse().unwrap()];
    let service = Hosted::start(Options { channels: 1 + CROWD, misbehave, ..Options::default() });
    (1..=CROWD).for_each(|channel| service.simulator.publish(channel, EVENTS));
    let course = Course::of(&service, wanted);
    let place = course.place(1);
    let (ended, mut healed) = (AtomicBool::new(false), 0);
    let (measured, probes) = std::thread::scope(|scope| {
        let prober = scope.spawn(|| Probes::until(&ended, &place));
        let measured = course.run_in(&place, 1, Duration::from_secs_f64(RATE.recip()), |daemon| {
            ended.store(true, Ordering::Relaxed);
            (1..=CROWD).for_each(|channel| service.simulator.misbehave(channel, None));
            healed = after(daemon, HEALING);
        });
        (measured, prober.join().unwrap())
    });
    let mut daemon = place.start();
    let started_again = after(&mut daemon, SETTLING);
    daemon.stop();

    let idle_ms = millis(wanted.idle_wait);
    let title =
        format!("hostile: one channel at {RATE} events/s beside {CROWD} that misbehave, idle_wait {idle_ms:.0} ms");
    let mut table = Table::of_figures(&title);
    table.figure("events", measured.published.len() as f64, "");
    for (name, samples, latest) in
        [("publication to line", &measured.published, idle_ms + 1000.0), ("page read to line", &measured.read, 1000.0)]
    {
        table.figure(&format!("{name}, ms, 50th percentile"), samples.at(0.5), "");
        table.figure("  99th", samples.at(0.99), &format!("{latest:.0} or less"));
        table.figure("  longest", samples.at(1.0), "");
    }
    table.figure("MiB resident, peak", mebibytes(measured.cost.peak), &format!("{} or less", MEMORY_MIB + REST_MIB));
    table.figure("MiB resident, at the end", mebibytes(measured.cost.resident), "");
    let most = mebibytes(started_again) + KEPT_MIB;
    let wanted_healed = format!("{most:.0} or less");
    table.figure("MiB resident, a minute after all became healthy", mebibytes(healed), &wanted_healed);
    table.figure("MiB resident, after another start", mebibytes(started_again), "");
    table.figure("% of one core", measured.cost.cpu.as_secs_f64() / wanted.time.as_secs_f64() * 100.0, "");
    let answered = figure(probes.times.len() as f64);
    table.figure(&format!("probes of /livez that failed, beside {answered} that did not"), probes.failed as f64, "0");
    table.figure("  longest of these, ms", probes.times.at(1.0), "1,000 or less");
    table.print();
}

/// Waits, and returns the resident bytes.
fn after(daemon: &mut Daemon<'_>, wait: Duration) -> u64 {
    std::thread::sleep(wait);
    daemon.must_run();
    daemon.cost().resident
}

/// The results of the probes of `/livez`.
struct Probes {
    /// The duration of each probe that was answered with 200, in milliseconds.
    times: Samples,
    failed: usize,
}

impl Probes {
    fn until(ended: &AtomicBool, place: &Place) -> Self {
        let mut probes = Self { times: Samples::default(), failed: 0 };
        while !ended.load(Ordering::Relaxed) {
            if let Some(admin) = place.admin() {
                let began = Instant::now();
                match probe(admin, "/livez") {
                    Ok(true) => probes.times.push(millis(began.elapsed())),
                    Ok(false) | Err(_) => probes.failed += 1,
                }
            }
            std::thread::sleep(PROBE_EVERY);
        }
        probes
    }
}
