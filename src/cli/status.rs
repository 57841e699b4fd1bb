//! `channeld status`: shows the state of the daemon, its channels and their lanes in a table that can be read in five
//! seconds.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anstyle::Style;
use jiff::Timestamp;

use super::cluster::differences;
use super::exit::{Exit, Failure};
use super::operate::Operator;
use super::shown::printable;
use super::table::{Cell, Table};
use super::terminal::{ASIDE, BAD, GOOD, PASSING, styled};
use crate::daemon::signals::Signals;
use channel::{Activity, ChannelStatus, LaneState, LaneStatus, Problem, SharedWorkflow, rate, span};
use ledger::Pause;
use operator::api::GetStatus;
use operator::{InstanceStatus, Report};

mod screen;

/// A channel or sink that catches up in fewer seconds than this is not reported as behind.
const NOTEWORTHY: u64 = 3;

/// Show how the daemon, its channels and their sinks are.
///
/// The first lines say whether everything is as it should be, and why it is not. Of a daemon that does not run, shows what
/// it left.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld status
  channeld status --watch 5
  channeld status --json | jq '.channels[] | {channel, lag_events}'")]
pub(super) struct Args {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Go on showing it, every so many seconds, 2 if no number is given: on a terminal as a screen, elsewhere as text
    ///
    /// On the screen the verdict stays on top, and what is in trouble comes first. Arrows, space or j and k move, Enter shows
    /// a channel with its sinks, its errors in full and its signers, Esc goes back, s sorts, f shows only some, / finds
    /// names, r shows every reason, q or Ctrl-C ends. Ctrl-Z suspends it, and `fg` of the shell shows it again.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u16).range(1..))]
    watch: Option<u16>,
}

pub(super) async fn run(args: &Args, config: Option<&Path>) -> Result<Exit, Failure> {
    let operator = Operator::open(config)?;
    if let Some(seconds) = args.watch {
        let every = Duration::from_secs(seconds.into());
        if !args.json && screen::is_possible() {
            return screen::watch(&operator, every).await;
        }
        return watch(args, &operator, every).await;
    }
    print(&text(args, &operator.ask(&GetStatus { here: false }).await?))?;
    Ok(Exit::Done)
}

/// Prints the report repeatedly, one below the other.
async fn watch(args: &Args, operator: &Operator, every: Duration) -> Result<Exit, Failure> {
    let mut signals = Signals::listen().map_err(Failure::output)?;
    loop {
        let text = match operator.ask_daemon(&GetStatus { here: false }).await {
            Ok(report) => text(args, &report),
            // The daemon may start later, or restart.
            Err(failure) => format!("{failure}\n"),
        };
        print(&text)?;
        tokio::select! { () = tokio::time::sleep(every) => {}, _ = signals.next() => return Ok(Exit::Done) }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Formats a report for a program or for a terminal.
fn text(args: &Args, report: &Report) -> String {
    if args.json {
        return format!("{}\n", serde_json::to_string(report).expect("a report is JSON"));
    }
    let (now, mut lines) = (Timestamp::now(), Vec::new());
    let reasons = || report.reasons.iter().map(|reason| format!("  {}", styled(BAD, &printable(reason))));
    if let Some(daemon) = report.daemon {
        let ready = if report.ready { styled(GOOD, "ready") } else { styled(BAD, "not ready") };
        let up = ago(daemon.started, now);
        lines.push(format!("channeld {}, process {}, up {up}: {ready}", report.version, daemon.pid));
        lines.extend(reasons());
    } else if report.instances.is_empty() {
        lines.push("no daemon runs; this is what the last one left".to_owned());
    } else {
        lines.push("no instance runs on this machine; this is what the others say".to_owned());
        lines.extend(reasons());
    }
    if !report.instances.is_empty() {
        lines.push(format!("instances: {}", report.instances.iter().map(instance).collect::<Vec<_>>().join(", ")));
        lines.extend(differences(&report.instances));
    }
    lines.extend(report.channels.iter().flat_map(|channel| paused(channel, now)).map(|line| styled(PASSING, &line)));
    for channel in &report.channels {
        let (name, pinned) = (&channel.channel, channel.pinned.join(", "));
        lines.extend((!pinned.is_empty()).then(|| format!("pinned: channel {name}, by {pinned}")));
        lines.extend(channel.shared_workflows.iter().map(|SharedWorkflow { workflow_id, first_in, .. }| {
            format!("notice: channel {name} shows workflow {workflow_id}, which channel {first_in} showed first")
        }));
    }
    for (what, kept) in [("quarantine", report.quarantine), ("dead letters", report.dead_letters)] {
        if kept.events > 0 {
            let full = if kept.full { ", full" } else { "" };
            lines.push(format!("{what}: {} events, {} bytes{full}", kept.events, kept.bytes));
        }
    }
    format!("{}\n\n{}", lines.join("\n"), table(report, now))
}

/// A short description of an instance.
fn instance(InstanceStatus { name, is_self, channels, .. }: &InstanceStatus) -> String {
    let this = if *is_self { "this one, " } else { "" };
    format!("{} ({this}{channels} channels)", printable(name))
}

/// The pauses of a channel and its sinks. An operator may have forgotten them.
fn paused(channel: &ChannelStatus, now: Timestamp) -> Vec<String> {
    let sinks = channel.lanes.iter().map(|lane| (format!(", sink {}", lane.sink), lane.paused));
    let each = std::iter::once((String::new(), channel.paused)).chain(sinks);
    let line = |(sink, pause): (String, Option<Pause>)| {
        let Pause { since, until } = pause?;
        let until = until.map_or("until it is resumed".to_owned(), |until| format!("until {until:.0}"));
        Some(format!("paused: channel {}{sink}, for {}, {until}", channel.channel, ago(since, now)))
    };
    each.filter_map(line).collect()
}

fn table(report: &Report, now: Timestamp) -> Table {
    let quantities = ["PROCESSED", "NEWEST", "LAG", "OLDEST", "LAST POLL", "LATE", "QUARANTINED"];
    let mut heading = vec![Cell::text("CHANNEL"), Cell::text("STATE")];
    heading.extend(quantities.map(|text| Cell::quantity(Some(text))));
    let mut rows = vec![(heading, String::new())];
    for channel in &report.channels {
        let (style, state, detail) = activity(&channel.activity, now);
        let detail =
            Some(detail).filter(|detail| !detail.is_empty()).or_else(|| catching_up(channel)).unwrap_or_default();
        let cells = vec![
            Cell::text(&*channel.channel),
            Cell::new(style, state),
            Cell::quantity(channel.processed),
            Cell::quantity(channel.newest),
            Cell::quantity(channel.lag_events),
            Cell::quantity(oldest(channel.oldest_undelivered_seconds)),
            Cell::quantity(channel.last_poll.map(|at| ago(at, now))),
            Cell::quantity(Some(channel.late)),
            Cell::quantity(Some(channel.quarantined)),
        ];
        rows.push((cells, detail));
        if let Some(error) = &channel.late_error {
            rows.push((vec![Cell::text("  late proofs")], problem(error, now)));
        }
        rows.extend(channel.lanes.iter().map(|lane| lane_row(lane, channel.lanes.len() > 1, now)));
    }
    Table(rows)
}

/// The row of a sink. `with_pace` adds the sink's pace, which can differ from the channel's pace.
fn lane_row(lane: &LaneStatus, with_pace: bool, now: Timestamp) -> (Vec<Cell>, String) {
    let detail = match (&lane.error, &lane.reading) {
        (Some(error), _) => problem(error, now),
        (None, Some(reading)) => activity(reading, now).2,
        (None, None) => String::new(),
    };
    let left = lane.seconds_left.filter(|seconds| with_pace && *seconds >= NOTEWORTHY).zip(lane.events_per_second);
    let left = left.map(|(seconds, per_second)| format!("{}, about {} left", rate(per_second), span(seconds)));
    let detail = left.filter(|_| detail.is_empty()).unwrap_or(detail);
    let style = match lane.state {
        LaneState::Ok => GOOD,
        LaneState::Behind | LaneState::Retrying => PASSING,
        LaneState::Stopped | LaneState::Blocked => BAD,
        LaneState::Paused => ASIDE,
    };
    let mut cells = vec![
        Cell::text(format!("  {}", lane.sink)),
        Cell::new(style, <&str>::from(lane.state)),
        Cell::quantity(lane.cursor),
        Cell::text(""),
        Cell::quantity(lane.lag_events),
        Cell::quantity(oldest(lane.oldest_undelivered_seconds)),
    ];
    cells.resize(9, Cell::text(""));
    (cells, detail)
}

/// The style and the words for an activity, and the detail text.
fn activity(activity: &Activity, now: Timestamp) -> (Style, String, String) {
    let style = match activity {
        Activity::Reading | Activity::Delivering | Activity::Idle => GOOD,
        Activity::Waiting { error } if !error.needs_attention => PASSING,
        Activity::AwaitingProof { .. } | Activity::AwaitingMemory => PASSING,
        Activity::Paused | Activity::Elsewhere { .. } => ASIDE,
        _ => BAD,
    };
    let detail = match activity {
        Activity::AwaitingProof { offset } => format!("of the event at {offset}"),
        Activity::AwaitingMemory => "until it is given back: see limits.memory".to_owned(),
        Activity::Elsewhere { owner: Some(owner) } => format!("in instance {owner}"),
        Activity::Elsewhere { owner: None } => "no instance owns it".to_owned(),
        _ => activity.problem().map_or_else(String::new, |error| problem(error, now)),
    };
    (style, <&str>::from(activity).replace('_', " "), detail)
}

/// The progress of a channel that needs more than a moment to catch up.
fn catching_up(channel: &ChannelStatus) -> Option<String> {
    channel.seconds_left.filter(|seconds| *seconds >= NOTEWORTHY)?;
    channel.progress().map(|progress| format!("{} {progress}", progress.bar(12)))
}

fn problem(problem: &Problem, now: Timestamp) -> String {
    let (times, since) = (problem.times, ago(problem.since, now));
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("{} ({times}, for {since})", printable(&problem.message))
}

/// The age of the oldest undelivered event, or `None` if nothing waits.
fn oldest(seconds: Option<u64>) -> Option<String> {
    seconds.filter(|seconds| *seconds > 0).map(span)
}

/// The time since `then`, in the largest whole unit. It is zero if the clock was set back since then.
fn ago(then: Timestamp, now: Timestamp) -> String {
    span(u64::try_from(now.as_second().saturating_sub(then.as_second())).unwrap_or_default())
}

#[cfg(test)]
mod tests;
