//! Benchmarks of the whole daemon: real processes, a real disk, and a simulated service over loopback.
//!
//! ```sh
//! cargo bench --bench end_to_end                                         # every scenario
//! cargo bench --bench end_to_end -- backlog --events 100000 --runs 5     # one scenario with a chosen size
//! cargo bench --features kafka --bench end_to_end -- tables             # including a Kafka topic
//! CHANNELD_BENCH_BIN=/usr/bin/channeld cargo bench --bench end_to_end    # another build of the daemon
//! cargo bench --bench end_to_end -- tables --against /usr/bin/channeld    # compared with another build
//! ```
//!
//! Prints the machine, and a table per scenario: median, minimum and maximum, ratios, and the expected values. Times
//! are not asserted.
//!
//! # Invariants
//!
//! * **Results are correct.** After each run the sink must contain every event once, in order and verified. Otherwise
//!   the program ends with an error and prints no figures.
//! * **Compared figures are measured alternately.** The speed of a machine changes over time.
//! * **Costs are separate.** If a scenario measures the speed of the daemon, the service runs in its own process, has
//!   created its records before, and its cost is printed too.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot continue panics")]
#![allow(clippy::cast_precision_loss, reason = "three digits of a figure are shown")]

mod backlog;
mod daemon;
mod delivered;
mod empty_service;
mod feed;
mod hostile;
mod idle;
#[cfg(feature = "kafka")]
mod kafka;
mod latency;
mod machine;
mod memory;
mod process;
mod server;
mod service;
mod startup;
mod stream;
mod table;
mod tables;
mod yardstick;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measures the whole daemon against a simulated service.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench end_to_end --")]
struct Args {
    /// The scenarios to measure [default: everything]
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// backlog, tables, feed: the number of events
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    events: u32,

    /// backlog, tables: the number of runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,

    /// backlog, tables: how events are signed, see `channeld simulate` [default: each way]
    #[arg(long, value_delimiter = ',', default_value = "network,arrival,rotating,fixed", hide_default_value = true)]
    signing: Vec<String>,

    /// tables: another build of the daemon, which is measured in turn with this one
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,

    /// memory: the number of events in the large backlog
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    far: u64,

    /// memory: how many of them to read [default: all]
    #[arg(long, value_name = "N")]
    far_until: Option<u64>,

    /// idle: the number of channels
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    channels: usize,

    /// idle, latency, hostile, feed: the duration of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,

    /// latency, hostile: the wait between polls, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    idle_wait: u64,

    /// `cargo bench` passes this flag.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// How fast a backlog becomes durable, and at what cost
    Backlog,
    /// How fast a backlog becomes durable in tables and streams, compared with a file
    Tables,
    /// Whether memory stays flat while a million events are read
    Memory,
    /// The cost of ten thousand idle channels, and how soon they are ready and stopped
    Idle,
    /// The time from publication to the sink
    Latency,
    /// Whether a channel is on time beside 999 channels that misbehave
    Hostile,
    /// The time until the first request to the service
    Startup,
    /// How fast and how soon clients of a feed receive events, and what waiting clients cost
    Feed,
}

fn main() {
    let args = Args::parse();
    machine::print();
    let chosen = if args.scenarios.is_empty() { Scenario::value_variants() } else { &args.scenarios };
    for scenario in chosen {
        measure(*scenario, &args);
    }
}

fn measure(scenario: Scenario, args: &Args) {
    let time = Duration::from_secs(args.seconds);
    let wanted = latency::Wanted { time, idle_wait: Duration::from_millis(args.idle_wait) };
    match scenario {
        Scenario::Backlog => backlog::run(args.events, args.runs, &args.signing),
        Scenario::Tables => tables::run(args.events, args.runs, &args.signing, args.against.as_deref()),
        Scenario::Memory => memory::run(args.far, args.far_until),
        Scenario::Idle => idle::run(args.channels, time),
        Scenario::Latency => latency::run(wanted),
        Scenario::Hostile => hostile::run(wanted),
        Scenario::Startup => startup::run(),
        Scenario::Feed => feed::run(args.events, time),
    }
}
