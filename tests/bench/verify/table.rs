//! The table: medians, and what they are of libsecp256k1's and of k256's.

use std::ops::Range;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::{Case, EVENTS};

/// In every round each case checks some of its events.
const ROUNDS: usize = 60;
const EVENTS_A_ROUND: u32 = 200;

/// Measures the cases in turns and prints what came out.
pub(crate) fn print(cases: &[Case]) {
    let medians = measure(cases);
    println!("\n{}\n", machine());
    println!(
        "{:<32} {:>10} {:>10} {:>16} {:>8}",
        "an event, on one core", "µs", "events/s", "of libsecp256k1", "of k256"
    );
    for (case, median) in cases.iter().zip(&medians) {
        let (of_yardstick, of_recovery) = (median / medians[0], median / medians[1]);
        let (name, rate) = (case.name, 1e6 / median);
        println!("{name:<32} {median:>10.1} {rate:>10.0} {of_yardstick:>16.2} {of_recovery:>8.2}");
    }
}

/// Microseconds an event, case by case.
fn measure(cases: &[Case]) -> Vec<f64> {
    let mut times = vec![Vec::with_capacity(ROUNDS); cases.len()];
    for round in 0..ROUNDS {
        let events = its_share(round);
        for (case, times) in cases.iter().zip(&mut times) {
            let started = now();
            case.events[events.clone()].iter().for_each(&case.check);
            times.push((now().saturating_sub(started) / EVENTS_A_ROUND).as_secs_f64() * 1e6);
        }
    }
    times.into_iter().map(median).collect()
}

/// Which of its events every case checks in a round.
fn its_share(round: usize) -> Range<usize> {
    let count = EVENTS_A_ROUND as usize;
    let first = round * count % EVENTS;
    first..first + count
}

/// How long this thread has been on a processor: what others take of the machine does not count.
fn now() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread has a clock");
    now.into()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", model.map_or("an unknown processor", |(_, name)| name))
}
