//! channeld as a whole, measured: real processes, a real disk, and a simulated service over loopback.
//!
//! ```sh
//! cargo bench --bench end_to_end                                         # every scenario
//! cargo bench --bench end_to_end -- backlog --events 100000 --runs 5     # one of them, of a chosen size
//! cargo bench --features kafka --bench end_to_end -- tables             # with a Kafka topic among the tables
//! CHANNELD_BENCH_BIN=/usr/bin/channeld cargo bench --bench end_to_end    # another build of the daemon
//! ```
//!
//! Prints tables: medians, the least and the most, ratios, and the machine. Beside them stands what
//! they should be; nothing is asserted about time.
//!
//! # Invariants
//!
//! * **What is measured is right.** After each run the sink must hold every event once, in order and verified: otherwise
//!   the program ends with what was wrong, and no figure.
//! * **Ratios come from one run.** What two figures are compared for is measured alternately, because machines drift.
//! * **Costs are told apart.** Where a daemon's speed is the question the service is a process of its own, whose records
//!   were made before, and what it costs is printed too.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on ends, and says where")]
#![allow(clippy::cast_precision_loss, reason = "three digits of a figure are shown")]

mod backlog;
mod daemon;
mod delivered;
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

use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measures the whole daemon against a simulated service.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench end_to_end --")]
struct Args {
    /// What to measure [default: everything]
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// backlog, tables: how many events it has
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    events: u32,

    /// backlog, tables: how often it is read
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,

    /// backlog, tables: how its events are signed, see `channeld simulate` [default: each way]
    #[arg(long, value_delimiter = ',', default_value = "network,arrival,rotating,fixed", hide_default_value = true)]
    signing: Vec<String>,

    /// memory: how many events are far behind
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    far: u64,

    /// memory: how many of those to read [default: all]
    #[arg(long, value_name = "N")]
    far_until: Option<u64>,

    /// idle: how many channels there are
    #[arg(long, value_name = "N", default_value_t = 1000)]
    channels: usize,

    /// idle, latency, hostile: for how many seconds each is measured
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,

    /// latency, hostile: the wait between polls, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    idle_wait: u64,

    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// How fast a backlog becomes durable, and at what cost
    Backlog,
    /// How fast a backlog becomes durable in tables and streams, beside a file
    Tables,
    /// Whether memory stays flat while a million events are read
    Memory,
    /// What a thousand channels cost that have nothing to do
    Idle,
    /// How long it takes from publication to the sink
    Latency,
    /// Whether a channel is on time beside 999 that misbehave
    Hostile,
    /// How long it takes until the service is asked for the first time
    Startup,
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
        Scenario::Tables => tables::run(args.events, args.runs, &args.signing),
        Scenario::Memory => memory::run(args.far, args.far_until),
        Scenario::Idle => idle::run(args.channels, time),
        Scenario::Latency => latency::run(wanted),
        Scenario::Hostile => hostile::run(wanted),
        Scenario::Startup => startup::run(),
    }
}
