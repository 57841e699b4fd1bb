//! The page of one channel, with its figures, sinks, full errors and signers, and the page of all reasons.

use jiff::Timestamp;
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::navigation::Model;
use super::trend;
use crate::cli::look::status::text::{
    ago, described, oldest, paused, problem, reasons_of, replays, trouble, unknown, with_remedies,
};
use crate::cli::terminal::{self, padded, shortened};
use crate::cli::verdict_line::printable;
use channel::{ChannelStatus, LaneStatus, Level, SharedWorkflow, StoredEvents, counted, grouped, rate, span};
use operator::{NotReady, Report, SignerNames};

/// Columns of the label before a fact.
pub(super) const LABEL: usize = 12;

const BAR: usize = 22;

const PLAIN: Style = Style::new();
const RED: Style = Style::new().red();
pub(super) const HEADING: Style = Style::new().bold().underlined();

pub(super) fn colour(level: Level) -> Style {
    match level {
        Level::NeedsAction => RED.bold(),
        Level::Passing | Level::Behind => PLAIN.yellow(),
        Level::Aside => PLAIN.cyan(),
        Level::Good => PLAIN.green(),
    }
}

/// Every reason why the daemon is not ready, in full.
pub(super) fn of_reasons(model: &Model, width: usize) -> Vec<Line<'static>> {
    let Some(report) = &model.report else { return Vec::new() };
    if report.reasons.is_empty() {
        return vec![Line::from("no reason not to be ready")];
    }
    let each = with_remedies(report);
    each.flat_map(|(problem, remedy)| reason("- ", &problem, remedy.as_deref(), width)).collect()
}

/// A reason not to be ready, with its remedy.
fn reason(first: &str, problem: &str, remedy: Option<&str>, width: usize) -> Vec<Line<'static>> {
    let mut lines = wrapped(first, &printable(problem), width, RED);
    lines.extend(remedy.iter().flat_map(|remedy| wrapped("  what to do: ", &printable(remedy), width, PLAIN)));
    lines
}

pub(super) fn of_channel(model: &Model, name: &str, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let found = model.report.as_ref().and_then(|report| {
        let channel = report.channels.iter().find(|channel| *channel.channel == *name)?;
        Some((report, channel))
    });
    let Some((report, channel)) = found else {
        return vec![Line::from(format!("the daemon no longer reports the channel {}", printable(name)))];
    };
    let mut lines = title(channel, report, width, now);
    lines.extend(facts(channel, width, now));
    lines.extend(hour(model, width));
    lines.push(Line::default());
    lines.extend(sinks(channel, width, now));
    lines.push(Line::default());
    lines.extend(signers(channel, &model.signer_names, width, now));
    lines
}

fn title(channel: &ChannelStatus, report: &Report, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(vec![
        printable(&channel.channel).bold(),
        Span::raw("  "),
        Span::styled(channel.condition.name(), colour(channel.condition.level())),
        format!("  {}", channel.channel_id).dim(),
    ])];
    let reasons = reasons_of(report, channel).map(NotReady::with_remedy);
    lines.extend(reasons.flat_map(|(problem, remedy)| reason("! ", &problem, remedy.as_deref(), width)));
    lines.extend(paused(channel, now).iter().flat_map(|line| wrapped("", line, width, PLAIN.cyan())));
    lines
}

fn facts(channel: &ChannelStatus, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |label: &str, what: &str, style: Style| {
        lines.extend(wrapped(&format!("{label:<LABEL$}  "), what, width, style));
    };
    say("reading", &described(&channel.activity, now), PLAIN);
    let through = channel.cursor.map_or_else(|| "nothing yet".to_owned(), |offset| format!("through {offset}"));
    let newest = channel.newest.map_or_else(|| "not known".to_owned(), |offset| offset.to_string());
    let lag = channel.lag_events.map_or_else(String::new, |lag| format!(", lag {}", grouped(lag)));
    let waits = oldest(channel.oldest_undelivered_seconds);
    let waits = waits.map_or_else(String::new, |waits| format!(", the oldest for {waits}"));
    say("cursor", &format!("{through}; the newest is {newest}{lag}{waits}"), PLAIN);
    if let Some(progress) = channel.progress().filter(|progress| progress.per_second.is_some()) {
        say("progress", &format!("{} {progress}", progress.bar(BAR)), PLAIN);
    }
    let polled = channel.last_poll.map_or_else(|| "not yet".to_owned(), |at| format!("{} ago", ago(at, now)));
    say("last poll", &polled, PLAIN);
    let kept = |what: &StoredEvents| {
        let full = if what.full { ", full" } else { "" };
        format!("{} ({}{full})", grouped(what.events), counted(what.bytes, "byte"))
    };
    say("pending", &format!("{} without a proof", channel.pending), PLAIN);
    say("quarantine", &kept(&channel.quarantine), PLAIN);
    say("dead letters", &kept(&channel.dead_letters), PLAIN);
    if let Some(error) = &channel.pending_error {
        say("pending", &problem(error, now), RED);
    }
    if let Some(error) = &channel.gap_error {
        say("gaps", &problem(error, now), RED);
    }
    for replay in replays(channel, now) {
        say("replay", &replay, PLAIN);
    }
    if let Some(error) = &channel.compare_error {
        say("compare", &problem(error, now), RED);
    }
    // The last error may be resolved, so it is shown with its age. An error that still applies is part of the activity.
    if let Some(error) = channel.last_error.as_ref().filter(|error| channel.activity.problem() != Some(error)) {
        say("last error", &format!("{} ago: {}", ago(error.since, now), printable(&error.message)), PLAIN.dim());
    }
    if let Some(account) = channel.account.name() {
        say("account", account, PLAIN);
    }
    if !channel.pinned.is_empty() {
        say("pinned", &channel.pinned.join(", "), PLAIN);
    }
    for SharedWorkflow { workflow_id, first_in, .. } in &channel.shared_workflows {
        say("notice", &format!("shows workflow {workflow_id}, which channel {first_in} showed first"), PLAIN);
    }
    if let Some(unknown) = unknown(channel) {
        say("notice", &format!("shows {unknown}"), PLAIN);
    }
    lines
}

/// The last hour of the channel.
fn hour(model: &Model, width: usize) -> Vec<Line<'static>> {
    let samples = model.trend().map_or(&[][..], |(_, samples)| samples);
    let lines = trend::lines(samples, width);
    let period = trend::period(samples).filter(|_| !lines.is_empty());
    let heading = period.map(|period| Line::from(shortened(&format!("{period}:"), width)).dim());
    heading.into_iter().chain(lines).collect()
}

fn sinks(channel: &ChannelStatus, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let names = channel.lanes.iter().map(|lane| lane.sink.width()).max().unwrap_or(0).clamp(4, 24);
    let heading = format!(
        "{:<names$} {:<9}{:>11}{:>11}{:>8}{:>8}{:>7}  PACE",
        "SINK", "STATE", "CURSOR", "LAG", "OLDEST", "PENDING", "QUEUED"
    );
    let mut lines = vec![Line::styled(shortened(&heading, width), HEADING)];
    for lane in &channel.lanes {
        lines.push(sink(lane, names, width));
        if lane.error.is_some() {
            lines.extend(wrapped("    ", &trouble(lane, now), width, RED));
        }
        if let Some(reading) = &lane.reading {
            lines.extend(wrapped("    ", &format!("reads alone: {}", described(reading, now)), width, PLAIN));
        }
    }
    lines
}

fn sink(lane: &LaneStatus, names: usize, width: usize) -> Line<'static> {
    let name = padded(&shortened(&printable(&lane.sink), names), names);
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let pace = match (lane.events_per_second, lane.seconds_left) {
        (Some(per_second), Some(seconds)) => format!("{}, {} left", rate(per_second), span(seconds)),
        (Some(per_second), None) => rate(per_second),
        _ => String::new(),
    };
    let figures = format!(
        "{:>11}{:>11}{:>8}{:>8}{:>7}  {pace}",
        or(lane.cursor.map(|cursor| cursor.to_string())),
        or(lane.lag_events.map(|lag| lag.to_string())),
        or(oldest(lane.oldest_undelivered_seconds)),
        lane.late_deliveries,
        lane.queued_batches,
    );
    let left = width.saturating_sub(names + 1 + 9);
    let state = Span::styled(format!("{:<9}", lane.condition.name_of_sink()), colour(lane.condition.level()));
    Line::from(vec![Span::raw(format!("{name} ")), state, Span::raw(shortened(&figures, left))])
}

fn signers(channel: &ChannelStatus, names: &SignerNames, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let all = channel.signers.len();
    let heading = format!("{:<44}LAST SEEN", format!("SIGNERS, {} of {all} needed", channel.required_signatures));
    let mut lines = vec![Line::styled(shortened(&heading, width), HEADING)];
    for signer in &channel.signers {
        let (seen, style) = match signer.last_seen {
            Some(at) => (format!("{} ago", ago(at, now)), PLAIN),
            None => ("not since the start".to_owned(), PLAIN.yellow()),
        };
        let seen = match names.get(&signer.signer) {
            Some(name) => format!("{seen:<20} {}", printable(name)),
            None => seen,
        };
        lines.push(Line::styled(shortened(&format!("{:<44}{seen}", signer.signer.to_string()), width), style));
    }
    lines
}

/// Wraps a text in a column to the right of the text `first`. A word that is longer than a line is broken.
pub(super) fn wrapped(first: &str, text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let indent = first.width();
    let begin = |number: usize| if number == 0 { first.to_owned() } else { " ".repeat(indent) };
    let line = |(number, text)| Line::from(vec![Span::raw(begin(number)), Span::styled(text, style)]);
    terminal::wrapped(text, width.saturating_sub(indent).max(8)).into_iter().enumerate().map(line).collect()
}
