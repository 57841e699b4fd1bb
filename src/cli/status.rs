//! `channeld status`: how the daemon, its channels and their lanes are, in a table that is read in five seconds.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::exit::{Exit, Failure};
use super::operate::{Operator, say_json};
use super::shown::printable;
use crate::channel::{Activity, LaneCondition, Problem};
use crate::daemon::signals::Signals;
use crate::operator::api::GetStatus;
use crate::operator::{LaneReport, Report};
use crate::telemetry::Chain;

mod table;

use table::{Cell, Mood, Table, styled};

/// From the first column of the first line on, nothing.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Show how the daemon, its channels and their sinks are.
///
/// The first lines say whether everything is as it should be, and why it is not. Of a daemon that does not run, shows what
/// it left.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Show it again every so many seconds, in place, until Ctrl-C: 2 if no number is given
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
}

/// Shows it.
///
/// # Errors
/// [`Failure`], where there is no report.
pub async fn run(args: &Args, config: Option<&Path>) -> Result<Exit, Failure> {
    let operator = Operator::open(config)?;
    if let Some(seconds) = args.watch {
        return watch(args, &operator, Duration::from_secs(seconds.into())).await;
    }
    let report = operator.ask(&GetStatus {}).await?;
    let mut out = anstream::stdout().lock();
    if args.json {
        say_json(&mut out, &report)?;
    } else {
        let shown = Shown { report: &report, now: Timestamp::now() };
        write!(out, "{shown}").and_then(|()| out.flush()).map_err(Failure::output)?;
    }
    Ok(Exit::Done)
}

/// Shows it again and again; on a terminal, each time over the time before.
async fn watch(args: &Args, operator: &Operator, every: Duration) -> Result<Exit, Failure> {
    let mut signals = Signals::listen().map_err(Failure::output)?;
    let in_place = io::stdout().is_terminal() && !args.json;
    loop {
        let shown = match operator.ask_daemon(&GetStatus {}).await {
            Ok(report) if args.json => format!("{}\n", serde_json::to_string(&report).expect("a report is JSON")),
            Ok(report) => Shown { report: &report, now: Timestamp::now() }.to_string(),
            // A daemon may start, or start again.
            Err(failure) => format!("{}\n", Chain(&failure)),
        };
        let mut out = anstream::stdout().lock();
        let clear = if in_place { CLEAR } else { "" };
        write!(out, "{clear}{shown}").and_then(|()| out.flush()).map_err(Failure::output)?;
        drop(out);
        tokio::select! { () = tokio::time::sleep(every) => {}, _ = signals.next() => return Ok(Exit::Done) }
    }
}

/// A report for a terminal.
struct Shown<'a> {
    report: &'a Report,
    now: Timestamp,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, now } = self;
        match report.daemon {
            Some(daemon) => {
                let ready = if report.ready { styled(Mood::Good, "ready") } else { styled(Mood::Bad, "not ready") };
                let up = ago(daemon.started, *now);
                writeln!(f, "channeld {}, process {}, up {up}: {ready}", report.version, daemon.pid)?;
            }
            None => writeln!(f, "no daemon runs; this is what the last one left")?,
        }
        for reason in report.reasons.iter().filter(|_| report.daemon.is_some()) {
            writeln!(f, "  {}", styled(Mood::Bad, &printable(reason)))?;
        }
        for (what, kept) in [("quarantine", report.quarantine), ("dead letters", report.dead_letters)] {
            if kept.events > 0 {
                let full = if kept.full { ", full" } else { "" };
                writeln!(f, "{what}: {} events, {} bytes{full}", kept.events, kept.bytes)?;
            }
        }
        write!(f, "\n{}", table(report, *now))
    }
}

fn table(report: &Report, now: Timestamp) -> Table {
    let right = |text: &str| Cell::quantity(Some(text));
    let mut table = Table::new(vec![
        Cell::text("CHANNEL"),
        Cell::text("STATE"),
        right("PROCESSED"),
        right("NEWEST"),
        right("LAG"),
        right("OLDEST"),
        right("LAST POLL"),
        right("LATE"),
        right("QUARANTINED"),
    ]);
    for channel in &report.channels {
        let (mood, state, detail) = activity(&channel.activity, now);
        table.push(vec![
            Cell::text(&channel.channel),
            Cell::new(mood, state),
            Cell::quantity(channel.processed),
            Cell::quantity(channel.newest),
            Cell::quantity(channel.lag_events),
            Cell::quantity(oldest(channel.oldest_undelivered_seconds)),
            Cell::quantity(channel.last_poll.map(|at| ago(at, now))),
            Cell::quantity(Some(channel.late)),
            Cell::quantity(Some(channel.quarantined)),
            Cell::text(detail),
        ]);
        if let Some(error) = &channel.late_error {
            table.push(vec![Cell::text("  late proofs"), Cell::text(problem(error, now))]);
        }
        for lane in &channel.lanes {
            table.push(lane_row(lane, now));
        }
    }
    table
}

fn lane_row(lane: &LaneReport, now: Timestamp) -> Vec<Cell> {
    let detail = match (&lane.status.error, &lane.status.reading) {
        (Some(error), _) => problem(error, now),
        (None, Some(reading)) => activity(reading, now).2,
        (None, None) => String::new(),
    };
    let (mood, state) = (mood(lane.status.state), lane.status.state.name());
    let name = format!("  {}", lane.sink);
    let (lag, oldest) = (Cell::quantity(lane.lag_events), Cell::quantity(oldest(lane.oldest_undelivered_seconds)));
    let mut row =
        vec![Cell::text(name), Cell::new(mood, state), Cell::quantity(lane.cursor), Cell::text(""), lag, oldest];
    row.resize(9, Cell::text(""));
    row.push(Cell::text(detail));
    row
}

/// A word, how it is meant, and what there is to say beside it.
fn activity(activity: &Activity, now: Timestamp) -> (Mood, &'static str, String) {
    let plain = |mood, state| (mood, state, String::new());
    match activity {
        Activity::Stopped => plain(Mood::Bad, "stopped"),
        Activity::Paused => plain(Mood::Aside, "paused"),
        Activity::Reading => plain(Mood::Good, "reading"),
        Activity::Delivering => plain(Mood::Good, "delivering"),
        Activity::Idle => plain(Mood::Good, "idle"),
        Activity::Waiting { error } => {
            let mood = if error.needs_attention { Mood::Bad } else { Mood::Passing };
            (mood, "waiting", problem(error, now))
        }
        Activity::InDoubt { error, .. } => (Mood::Bad, "in doubt", problem(error, now)),
        Activity::AwaitingProof { offset } => (Mood::Passing, "awaiting proof", format!("of the event at {offset}")),
        Activity::TooManyLate => plain(Mood::Bad, "too many late"),
        Activity::QuarantineFull => plain(Mood::Bad, "quarantine full"),
        Activity::Gone => plain(Mood::Bad, "gone"),
    }
}

fn mood(condition: LaneCondition) -> Mood {
    match condition {
        LaneCondition::Ok => Mood::Good,
        LaneCondition::Behind | LaneCondition::Retrying => Mood::Passing,
        LaneCondition::Stopped | LaneCondition::Blocked => Mood::Bad,
        LaneCondition::Paused => Mood::Aside,
    }
}

fn problem(problem: &Problem, now: Timestamp) -> String {
    let (times, since) = (problem.times, ago(problem.since, now));
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("{} ({times}, for {since})", printable(&problem.message))
}

/// The age of what waits longest, where anything does.
fn oldest(seconds: Option<u64>) -> Option<String> {
    seconds.filter(|seconds| *seconds > 0).map(|seconds| span(i64::try_from(seconds).unwrap_or(i64::MAX)))
}

/// How long ago, in the largest whole unit. The clock may have been set meanwhile.
fn ago(then: Timestamp, now: Timestamp) -> String {
    span(now.as_second().saturating_sub(then.as_second()).max(0))
}

fn span(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
