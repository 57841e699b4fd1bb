//! `channeld simulate`: the simulated service, until a signal ends it.
//!
//! # Invariants
//!
//! * **One line.** Standard output gets exactly one JSON line, the announcement, once connections are accepted.
//!
//! # Cancellation
//!
//! SIGTERM and SIGINT end it.

use std::io::Write;
use std::net::SocketAddr;

use super::Exit;
use crate::daemon::signals::{Signal, Signals};
use crate::simulator::{Announcement, HasMore, LateProofs, Options, Simulator, Window, api_key};

/// Simulates the channel events service over HTTP.
///
/// Prints one JSON line once it listens: base_url, api_key, org_id, workflow_owner, valid_signers,
/// min_required_signatures and channels (ids). Runs until it is interrupted.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "this text is the command's help, where the names stand as they are")]
pub struct Args {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// The key that clients must present [default: sim-… made from the seed]
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    api_key: Option<String>,

    /// The organisation whose events these are, in tenant 1
    #[arg(long, value_name = "ID", default_value = "org_simulated")]
    org_id: String,

    /// How many channels there are, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    channels: u16,

    /// How many events each channel has already, up to 100 million
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    events: u64,

    /// New events a second in each channel, 0 to 100000
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = rate)]
    rate: f64,

    /// Share of events that never carry a proof, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    unsigned: f64,

    /// Share of proofs that come after their events, and how long after, such as 0.1:30s [default: none]
    #[arg(long, value_name = "P:DURATION")]
    late_proofs: Option<LateProofs>,

    /// Share of events whose proof does not hold, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    forged: f64,

    /// Share of requests that fail, each in another way, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    faults: f64,

    /// Ids, keys, contents and faults are made from this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// Which events a page holds where more than its limit are newer than the offset
    #[arg(long, value_enum, default_value_t)]
    window: Window,

    /// Return the event at the offset itself again
    #[arg(long)]
    inclusive: bool,

    /// What has_more speaks of
    #[arg(long, value_enum, default_value_t)]
    has_more: HasMore,

    /// Leave gaps between offsets
    #[arg(long)]
    sparse: bool,

    /// Make every record before announcing, and keep them all, 2.7 kB each: answers then cost no signatures
    #[arg(long)]
    prepared: bool,
}

impl From<Args> for Options {
    fn from(args: Args) -> Self {
        Self {
            listen: args.listen,
            api_key: args.api_key.unwrap_or_else(|| api_key(args.seed)),
            org_id: args.org_id,
            channels: args.channels.into(),
            events: args.events,
            rate: args.rate,
            unsigned: args.unsigned,
            late_proofs: args.late_proofs,
            forged: args.forged,
            faults: args.faults,
            seed: args.seed,
            window: args.window,
            inclusive: args.inclusive,
            has_more: args.has_more,
            sparse: args.sparse,
            ends_at: None,
            prepared: args.prepared,
        }
    }
}

/// Runs the simulator until a signal.
pub async fn run(args: Args) -> Exit {
    match simulate(args).await {
        Ok(()) => Exit::Done,
        Err(error) => {
            anstream::eprintln!("channeld simulate: {error}");
            Exit::Failed
        }
    }
}

async fn simulate(args: Args) -> Result<(), String> {
    let listen = args.listen;
    let mut signals = Signals::listen().map_err(|error| format!("cannot listen for signals: {error}"))?;
    let simulator = Simulator::start(args.into())
        .await
        .map_err(|error| format!("cannot listen at {listen}: {error}; choose another --listen"))?;
    announce(simulator.announcement()).map_err(|error| format!("cannot write to standard output: {error}"))?;
    while signals.next().await != Signal::Stop {}
    simulator.stop().await;
    Ok(())
}

fn announce(announcement: &Announcement) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(announcement)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line)?;
    stdout.flush()
}

fn share(text: &str) -> Result<f64, String> {
    within(text, 1.0)
}

fn rate(text: &str) -> Result<f64, String> {
    within(text, 100_000.0)
}

fn within(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 0 to {most}"))
}

#[cfg(test)]
mod tests;
