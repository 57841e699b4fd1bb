//! channeld as a whole, measured: real processes, a real disk, and a simulated service over loopback.
//!
//! ```sh
//! cargo bench --bench end_to_end                                         # every scenario
//! cargo bench --bench end_to_end -- backlog --events 100000 --runs 5     # one of them, of a chosen size
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
mod machine;
mod process;
mod service;
mod table;
mod yardstick;

use clap::{Parser, ValueEnum};

/// Measures the whole daemon against a simulated service.
#[derive(Debug, Parser)]
#[command(name = "cargo bench --bench end_to_end --")]
struct Args {
    /// What to measure [default: everything]
    #[arg(value_enum)]
    scenarios: Vec<Scenario>,

    /// How many events the backlog has
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    events: u32,

    /// How often the backlog is read
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,

    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    /// How fast a backlog becomes durable, and at what cost
    Backlog,
}

fn main() {
    let args = Args::parse();
    machine::print();
    let chosen = if args.scenarios.is_empty() { Scenario::value_variants() } else { &args.scenarios };
    for scenario in chosen {
        match scenario {
            Scenario::Backlog => backlog::run(args.events, args.runs),
        }
    }
}
