//! The page of one channel, with its figures, sinks, full errors and signers, and the page of all reasons.

use jiff::Timestamp;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::health::{Health, colour};
use super::navigation::Model;
use crate::cli::look::status::text::{activity, ago, oldest, paused, problem};
use crate::cli::shown::printable;
use crate::cli::terminal::{self, shortened};
use channel::{ChannelStatus, Kept, LaneStatus, Problem, SharedWorkflow, grouped, rate, span};
use operator::SignerNames;

/// Columns of the label before a fact.
const LABEL: usize = 12;

/// Columns of a progress bar.
const BAR: usize = 22;

const RED: Style = Style::new().fg(Color::Red);
const HEADING: Style = Style::new().add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED));

/// Every reason why the daemon is not ready, in full.
pub(super) fn of_reasons(model: &Model, width: usize) -> Vec<Line<'static>> {
    let Some(report) = &model.report else { return Vec::new() };
    if report.reasons.is_empty() {
        return vec![Line::from("nothing speaks against being ready")];
    }
    report.reasons.iter().flat_map(|reason| wrapped("- ", &printable(reason), width, RED)).collect()
}

/// Everything that is known about a channel.
pub(super) fn of_channel(model: &Model, name: &str, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let Some((channel, health)) = model.channel(name) else {
        return vec![Line::from(format!("the channel {} is not there any more", printable(name)))];
    };
    let mut lines = title(channel, health, width, now);
    lines.extend(facts(channel, width, now));
    lines.push(Line::default());
    lines.extend(sinks(channel, width, now));
    lines.push(Line::default());
    lines.extend(signers(channel, &model.signer_names, width, now));
    lines
}

fn title(channel: &ChannelStatus, health: &Health, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let name = Span::styled(printable(&channel.channel), bold);
    let mut lines = vec![Line::from(vec![
        name,
        Span::raw("  "),
        Span::styled(health.condition.name(), colour(health.condition.level())),
        Span::styled(format!("  {}", channel.channel_id), Style::new().add_modifier(Modifier::DIM)),
    ])];
    lines.extend(health.reasons.iter().flat_map(|reason| wrapped("! ", reason, width, RED)));
    lines.extend(
        paused(channel, now).into_iter().flat_map(|line| wrapped("", &line, width, Style::new().fg(Color::Cyan))),
    );
    lines
}

fn facts(channel: &ChannelStatus, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |label: &str, what: &str, style: Style| lines.extend(labelled(label, what, width, style));
    let plain = Style::new();
    let (state, detail) = activity(&channel.activity, now);
    say("reading", [state, detail].join(" ").trim_end(), plain);
    let through = channel.processed.map_or_else(|| "nothing yet".to_owned(), |offset| format!("through {offset}"));
    let newest = channel.newest.map_or_else(|| "not known".to_owned(), |offset| offset.to_string());
    let lag = channel.lag_events.map_or_else(String::new, |lag| format!(", {} behind", grouped(lag)));
    let waits = oldest(channel.oldest_undelivered_seconds);
    let waits = waits.map_or_else(String::new, |waits| format!(", the oldest for {waits}"));
    say("processed", &format!("{through}; the newest is {newest}{lag}{waits}"), plain);
    if let Some(progress) = channel.progress().filter(|progress| progress.per_second.is_some()) {
        say("progress", &format!("{} {progress}", progress.bar(BAR)), plain);
    }
    let polled = channel.last_poll.map_or_else(|| "not yet".to_owned(), |at| format!("{} ago", ago(at, now)));
    say("last poll", &polled, plain);
    let kept = |what: &Kept| {
        let full = if what.full { ", full" } else { "" };
        format!("{} ({} bytes{full})", grouped(what.events), grouped(what.bytes))
    };
    say("late", &format!("{} wait for their proof", channel.late), plain);
    say("quarantine", &kept(&channel.quarantine), plain);
    say("dead letters", &kept(&channel.dead_letters), plain);
    if let Some(error) = &channel.late_error {
        say("late proofs", &problem(error, now), RED);
    }
    if let Some(error) = channel.last_error.as_ref().filter(|error| channel.activity.problem() != Some(error)) {
        say("last error", &over(error, now), Style::new().add_modifier(Modifier::DIM));
    }
    if !channel.pinned.is_empty() {
        say("pinned", &channel.pinned.join(", "), plain);
    }
    for SharedWorkflow { workflow_id, first_in, .. } in &channel.shared_workflows {
        say("notice", &format!("shows workflow {workflow_id}, which channel {first_in} showed first"), plain);
    }
    lines
}

/// An error that may be resolved by now.
fn over(error: &Problem, now: Timestamp) -> String {
    format!("{} ago: {}", ago(error.since, now), printable(&error.message))
}

fn sinks(channel: &ChannelStatus, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let names = channel.lanes.iter().map(|lane| lane.sink.width()).max().unwrap_or(0).clamp(4, 24);
    let heading = format!(
        "{:<names$} {:<9}{:>11}{:>11}{:>8}{:>7}{:>7}  PACE",
        "SINK", "STATE", "CURSOR", "LAG", "OLDEST", "OWED", "QUEUED"
    );
    let mut lines = vec![Line::styled(shortened(&heading, width), HEADING)];
    for lane in &channel.lanes {
        lines.push(sink(lane, names, width));
        if let Some(error) = &lane.error {
            lines.extend(wrapped("    ", &problem(error, now), width, RED));
        }
        if let Some(reading) = &lane.reading {
            let (state, detail) = activity(reading, now);
            lines.extend(wrapped(
                "    ",
                format!("reads for itself: {state} {detail}").trim_end(),
                width,
                Style::new(),
            ));
        }
    }
    lines
}

fn sink(lane: &LaneStatus, names: usize, width: usize) -> Line<'static> {
    let name = shortened(&printable(&lane.sink), names);
    let name = format!("{name}{} ", " ".repeat(names.saturating_sub(name.width())));
    let or = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let pace = match (lane.events_per_second, lane.seconds_left) {
        (Some(per_second), Some(seconds)) => format!("{}, {} left", rate(per_second), span(seconds)),
        (Some(per_second), None) => rate(per_second),
        _ => String::new(),
    };
    let figures = format!(
        "{:>11}{:>11}{:>8}{:>7}{:>7}  {pace}",
        or(lane.cursor.map(|cursor| cursor.to_string())),
        or(lane.lag_events.map(|lag| lag.to_string())),
        or(oldest(lane.oldest_undelivered_seconds)),
        lane.owed,
        lane.queued_batches,
    );
    let left = width.saturating_sub(names + 1 + 9);
    let state = Span::styled(format!("{:<9}", lane.condition.name_of_sink()), colour(lane.condition.level()));
    Line::from(vec![Span::raw(name), state, Span::raw(shortened(&figures, left))])
}

fn signers(channel: &ChannelStatus, names: &SignerNames, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let all = channel.signers.len();
    let heading = format!("{:<44}{}", format!("SIGNERS, {} of {all} needed", channel.required_signatures), "LAST SEEN");
    let mut lines = vec![Line::styled(shortened(&heading, width), HEADING)];
    for signer in &channel.signers {
        let seen = signer.last_seen.map(|at| format!("{} ago", ago(at, now)));
        let style = if seen.is_some() { Style::new() } else { Style::new().fg(Color::Yellow) };
        let seen = seen.unwrap_or_else(|| "not since the start".to_owned());
        let seen = match names.get(&signer.signer) {
            Some(name) => format!("{seen:<20} {}", printable(name)),
            None => seen,
        };
        lines.push(Line::styled(shortened(&format!("{:<44}{seen}", signer.signer.to_string()), width), style));
    }
    lines
}

fn labelled(label: &str, what: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    wrapped(&format!("{label:<LABEL$}  "), what, width, style)
}

/// Wraps a text behind a first column. A word that is longer than a line is broken.
pub(super) fn wrapped(first: &str, text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    let indent = first.width();
    let blank = " ".repeat(indent);
    let begin = |number: usize| if number == 0 { first.to_owned() } else { blank.clone() };
    let line = |(number, text)| Line::from(vec![Span::raw(begin(number)), Span::styled(text, style)]);
    terminal::wrapped(text, width.saturating_sub(indent).max(8)).into_iter().enumerate().map(line).collect()
}
