//! `channeld status`: how the daemon, its channels and their lanes are, in a table that is read in five seconds.

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;

use super::connect::load;
use super::exit::{Exit, Failure};
use super::operate::{Operator, unexpected, write_json};
use super::shown::printable;
use crate::channel::{Activity, Problem};
use crate::control::{Answer, ChannelReport, LaneReport, Report, Request};
use crate::event::Offset;

/// Show how the daemon, its channels and their sinks are.
///
/// The first lines say whether everything is as it should be, and why it is not. Of a daemon that does not run, shows what
/// it left.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shows it.
///
/// # Errors
/// [`Failure`], where it cannot be told.
pub async fn run(args: &Args, config: Option<&Path>, out: &mut impl Write) -> Result<Exit, Failure> {
    let config = load(config)?;
    let answer = Operator::new(&config).ask(Request::Status).await?;
    let Answer::Status(report) = answer else { return Err(unexpected()) };
    if args.json {
        write_json(out, &[&*report])?;
    } else {
        write(out, &report, Timestamp::now()).and_then(|()| out.flush()).map_err(Failure::output)?;
    }
    Ok(Exit::Done)
}

fn write(out: &mut impl Write, report: &Report, now: Timestamp) -> io::Result<()> {
    match report.daemon {
        Some(daemon) => {
            let (ready, up) = (if report.ready { "ready" } else { "not ready" }, ago(daemon.started, now));
            writeln!(out, "channeld {}, process {}, up {up}: {ready}", report.version, daemon.pid)?;
        }
        None => writeln!(out, "no daemon runs; this is what the last one left")?,
    }
    for reason in report.reasons.iter().filter(|_| report.daemon.is_some()) {
        writeln!(out, "  {}", printable(reason))?;
    }
    for (what, kept) in [("quarantine", report.quarantine), ("dead letters", report.dead_letters)] {
        if kept.events > 0 {
            let full = if kept.full { ", full" } else { "" };
            writeln!(out, "{what}: {} events, {} bytes{full}", kept.events, kept.bytes)?;
        }
    }
    let width = report.channels.iter().flat_map(names).map(|name| name.chars().count()).max().unwrap_or(0).max(7);
    writeln!(
        out,
        "\n{:width$}  {:15}  {:>12}  {:>12}  {:>9}  {:>6}  {:>11}",
        "CHANNEL", "STATE", "PROCESSED", "NEWEST", "LAST POLL", "LATE", "QUARANTINED"
    )?;
    report.channels.iter().try_for_each(|channel| write_channel(out, channel, width, now))
}

/// What stands in the first column: the channel, and its sinks below it.
fn names(channel: &ChannelReport) -> impl Iterator<Item = String> {
    let sinks = channel.lanes.iter().map(|lane| format!("  {}", lane.sink));
    std::iter::once(channel.channel.clone()).chain(sinks)
}

fn write_channel(out: &mut impl Write, channel: &ChannelReport, width: usize, now: Timestamp) -> io::Result<()> {
    let (state, detail) = activity(&channel.activity, now);
    let last_poll = channel.last_poll.map_or_else(|| "-".to_owned(), |at| ago(at, now));
    writeln!(
        out,
        "{:width$}  {state:15}  {:>12}  {:>12}  {last_poll:>9}  {:>6}  {:>11}{detail}",
        channel.channel,
        offset(channel.processed),
        offset(channel.newest),
        channel.late,
        channel.quarantined,
    )?;
    if let Some(error) = &channel.late_error {
        writeln!(out, "{:width$}  {}", "  late proofs", problem(error, now))?;
    }
    channel.lanes.iter().try_for_each(|lane| write_lane(out, lane, width, now))
}

fn write_lane(out: &mut impl Write, lane: &LaneReport, width: usize, now: Timestamp) -> io::Result<()> {
    let detail = match (&lane.status.error, &lane.status.reading) {
        (Some(error), _) => format!("  {}", problem(error, now)),
        (None, Some(reading)) => activity(reading, now).1,
        (None, None) => String::new(),
    };
    let (name, state) = (format!("  {}", lane.sink), lane.status.state.name());
    writeln!(out, "{name:width$}  {state:15}  {:>12}{detail}", offset(lane.cursor))
}

/// A word, and what there is to say beside it.
fn activity(activity: &Activity, now: Timestamp) -> (&'static str, String) {
    match activity {
        Activity::Stopped => ("stopped", String::new()),
        Activity::Paused => ("paused", String::new()),
        Activity::Reading => ("reading", String::new()),
        Activity::Delivering => ("delivering", String::new()),
        Activity::Idle => ("idle", String::new()),
        Activity::Waiting { error } => ("waiting", format!("  {}", problem(error, now))),
        Activity::InDoubt { error, .. } => ("in doubt", format!("  {}", problem(error, now))),
        Activity::AwaitingProof { offset } => ("awaiting proof", format!("  of the event at {offset}")),
        Activity::TooManyLate => ("too many late", String::new()),
        Activity::QuarantineFull => ("quarantine full", String::new()),
        Activity::Gone => ("gone", String::new()),
    }
}

fn problem(problem: &Problem, now: Timestamp) -> String {
    let (times, since) = (problem.times, ago(problem.since, now));
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("{} ({times}, for {since})", printable(&problem.message))
}

fn offset(offset: Option<Offset>) -> String {
    offset.map_or_else(|| "-".to_owned(), |offset| offset.to_string())
}

/// How long ago, in the largest whole unit. The clock may have been set meanwhile.
fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(then.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_said_in_the_largest_unit_that_tells() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let cases = [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d"), (-5, "0 s")];
        for (seconds, said) in cases {
            assert_eq!(ago(Timestamp::from_second(1_000_000 - seconds).unwrap(), now), said);
        }
    }
}
