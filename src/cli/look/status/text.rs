//! The daemon's report as text: the state of the daemon, and a table of the channels with their lanes.

use std::iter;

use anstyle::Style;
use jiff::Timestamp;

use super::feed::{consumers, line as feed_line};
use crate::cli::look::cluster::differences;
use crate::cli::terminal::{ASIDE, BAD, Cell, GOOD, PASSING, Table, json_for_stdout, styled, wrapped_and_styled};
use crate::cli::verdict_line::printable;
use channel::{
    Activity, ChannelStatus, Condition, LaneStatus, Level, NOTEWORTHY, Problem, ReplayStatus, SharedWorkflow,
    UnknownValueStatus, counted, rate, span,
};
use ledger::Pause;
use operator::feed::FeedStatus;
use operator::runbook::split_remedy;
use operator::{InstanceStatus, NotReady, Report};

/// Columns of a progress bar.
const BAR: usize = 12;

/// The number of reasons not to be ready that are shown with their remedies.
const REMEDIES: usize = 10;

/// The number of unknown values of a channel that are named.
const UNKNOWN_SHOWN: usize = 5;

/// The columns that a narrow terminal does not show, in this order. Other lines show the same numbers, or the sum of them.
const OPTIONAL: [&str; 5] = ["NEWEST", "QUARANTINED", "LAST POLL", "PENDING", "OLDEST"];

/// The report as text, or as JSON. No line of the text is wider than `width`, if it is given.
pub(super) fn text(json: bool, report: &Report, width: Option<usize>) -> String {
    if json {
        return json_for_stdout(report);
    }
    let (now, width) = (Timestamp::now(), width.unwrap_or(usize::MAX));
    let lines = lines(report, now);
    let lines: Vec<_> = lines.iter().flat_map(|(style, line)| wrapped_and_styled(*style, line, width)).collect();
    let mut text = format!("{}\n\n{}", lines.join("\n"), table(report, now).with_wrapped_ends(width, &OPTIONAL));
    let has_consumers = |feed: &&FeedStatus| !feed.consumers.is_empty();
    if let Some(feed) = report.feed.as_ref().filter(has_consumers) {
        text += "\n\n";
        text += &consumers(&feed.consumers, now).with_wrapped_ends(width, &OPTIONAL);
    }
    text
}

/// The lines above the tables, each with its style.
fn lines(report: &Report, now: Timestamp) -> Vec<(Style, String)> {
    let mut lines = Vec::new();
    let plain = |text: String| (Style::new(), text);
    let reasons = || {
        with_remedies(report).flat_map(|(problem, remedy)| {
            let remedy = remedy.map(|remedy| plain(format!("    what to do: {}", printable(&remedy))));
            iter::once((BAD, format!("  {}", printable(&problem)))).chain(remedy)
        })
    };
    if let Some(daemon) = report.daemon {
        let ready = if report.ready { styled(GOOD, "ready") } else { styled(BAD, "not ready") };
        let up = ago(daemon.started, now);
        lines.push(plain(format!("channeld {}, process {}, up {up}: {ready}", report.version, daemon.pid)));
        lines.extend(reasons());
    } else if report.instances.is_empty() {
        lines.push(plain("no daemon is running; this is the recorded state".to_owned()));
    } else {
        lines.push(plain("no instance is running on this machine; this is the status of the others".to_owned()));
        lines.extend(reasons());
    }
    lines.extend(report.warnings.iter().map(|warning| (PASSING, format!("warning: {}", printable(warning)))));
    let log_lines_lost = report.daemon.map_or(0, |daemon| daemon.log_lines_lost);
    if log_lines_lost > 0 {
        let lost = counted(log_lines_lost, "line");
        lines.push(plain(format!("log: {lost} lost, because standard error did not accept them")));
    }
    let early_ack = report.state_early_ack.iter();
    lines.extend(early_ack.map(|why| plain(format!("state: acknowledges early: {}", printable(why)))));
    lines.extend(report.feed.as_ref().map(|feed| plain(feed_line(feed, now))));
    if !report.instances.is_empty() {
        let instances = report.instances.iter().map(instance).collect::<Vec<_>>().join(", ");
        lines.push(plain(format!("instances: {instances}")));
        lines.extend(differences(&report.instances).map(plain));
    }
    let discovered = report.channels.iter().filter(|channel| channel.discovered).map(|channel| &*channel.channel);
    let discovered: Vec<_> = discovered.collect();
    lines.extend((!discovered.is_empty()).then(|| plain(format!("discovered: {}", discovered.join(", ")))));
    lines.extend(report.channels.iter().flat_map(|channel| paused(channel, now)).map(|line| (PASSING, line)));
    lines.extend(report.channels.iter().flat_map(|channel| notices(channel, now)).map(plain));
    for (what, kept) in [("quarantine", report.quarantine), ("dead letters", report.dead_letters)] {
        if kept.events > 0 {
            let full = if kept.full { ", full" } else { "" };
            lines.push(plain(format!(
                "{what}: {}, {}{full}",
                counted(kept.events, "event"),
                counted(kept.bytes, "byte")
            )));
        }
    }
    lines
}

/// Each reason not to be ready. The first reasons have their remedies.
pub(super) fn with_remedies(report: &Report) -> impl Iterator<Item = (String, Option<String>)> {
    let each = report.reasons.iter().zip(report.not_ready.iter().map(Some).chain(iter::repeat(None))).enumerate();
    each.map(|(at, (text, reason))| match reason {
        Some(reason) if at < REMEDIES => reason.with_remedy(),
        _ => (text.clone(), None),
    })
}

/// The lines about one channel, except its pauses.
fn notices(channel: &ChannelStatus, now: Timestamp) -> Vec<String> {
    let (name, pinned, mut lines) = (&channel.channel, channel.pinned.join(", "), Vec::new());
    lines.extend(channel.account.name().map(|account| format!("account: channel {name}, of {account}")));
    lines.extend((!pinned.is_empty()).then(|| format!("pinned: channel {name}, by {pinned}")));
    lines.extend(channel.shared_workflows.iter().map(|SharedWorkflow { workflow_id, first_in, .. }| {
        format!("notice: channel {name} shows workflow {workflow_id}, which channel {first_in} showed first")
    }));
    lines.extend(unknown(channel).map(|unknown| format!("notice: channel {name} shows {unknown}")));
    lines.extend(replays(channel, now).map(|replay| format!("replay: channel {name}, {replay}")));
    let compare_error = channel.compare_error.iter();
    lines.extend(compare_error.map(|error| format!("compare: channel {name}, {}", problem(error, now))));
    lines
}

/// The values of the service that this version does not know. `None` if all are known.
pub(super) fn unknown(channel: &ChannelStatus) -> Option<String> {
    let (values, first) = (&channel.unknown_values, UNKNOWN_SHOWN.min(channel.unknown_values.len()));
    let value = |UnknownValueStatus { what, value, .. }: &UnknownValueStatus| {
        format!("{} {}", <&str>::from(what).replace('_', " "), printable(value))
    };
    let named = values[..first].iter().map(value).collect::<Vec<_>>().join(", ");
    let more = values.len() - first;
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!values.is_empty()).then(|| format!("values that this version does not know: {named}{more}"))
}

/// One text for each replay of the channel that has not ended.
pub(super) fn replays(channel: &ChannelStatus, now: Timestamp) -> impl Iterator<Item = String> {
    let error = channel.replay_error.as_ref().map_or_else(String::new, |error| format!("; {}", problem(error, now)));
    channel.replays.iter().map(move |replay| {
        let ReplayStatus { id, sinks, from, to, state, events, .. } = replay;
        let (state, sinks, events) = (<&str>::from(*state), sinks.join(", "), counted(*events, "event"));
        let progress = replay.progress();
        format!("{id} to {sinks}: {state}, {events} of {from} to {to} delivered, offsets read: {progress}{error}")
    })
}

pub(super) fn instance(InstanceStatus { name, is_self, channels, .. }: &InstanceStatus) -> String {
    let this = if *is_self { "this one, " } else { "" };
    format!("{} ({this}{})", printable(name), counted(*channels as u64, "channel"))
}

/// One line for each pause of the channel or of its sinks.
pub(super) fn paused(channel: &ChannelStatus, now: Timestamp) -> Vec<String> {
    let sinks = channel.lanes.iter().map(|lane| (format!(", sink {}", lane.sink), lane.paused));
    let each = iter::once((String::new(), channel.paused)).chain(sinks);
    let line = |(sink, pause): (String, Option<Pause>)| {
        let Pause { since, until } = pause?;
        let until = until.map_or("until it is resumed".to_owned(), |until| format!("until {until:.0}"));
        Some(format!("paused: channel {}{sink}, for {}, {until}", channel.channel, ago(since, now)))
    };
    each.filter_map(line).collect()
}

pub(super) fn table(report: &Report, now: Timestamp) -> Table {
    let quantities = ["CURSOR", "NEWEST", "LAG", "OLDEST", "LAST POLL", "PENDING", "QUARANTINED"];
    let mut heading = vec![Cell::text("CHANNEL"), Cell::text("STATE")];
    heading.extend(quantities.map(|text| Cell::quantity(Some(text))));
    let mut rows = vec![(heading, String::new())];
    for channel in &report.channels {
        let catching_up = channel.progress().filter(|_| channel.seconds_left >= Some(NOTEWORTHY));
        let catching_up = catching_up.map_or_else(String::new, |progress| format!("{} {progress}", progress.bar(BAR)));
        let detail = [reading(channel, now), catching_up].join(" ");
        let cells = vec![
            Cell::text(&*channel.channel),
            Cell::new(style(channel.condition.level()), channel.condition.name()),
            Cell::quantity(channel.cursor),
            Cell::quantity(channel.newest),
            Cell::quantity(channel.lag_events),
            Cell::quantity(oldest(channel.oldest_undelivered_seconds)),
            Cell::quantity(channel.last_poll.map(|at| ago(at, now))),
            Cell::quantity(Some(channel.pending)),
            Cell::quantity(Some(channel.quarantined)),
        ];
        rows.push((cells, detail.trim().to_owned()));
        if let Some(error) = &channel.pending_error {
            rows.push((vec![Cell::text("  pending")], problem(error, now)));
        }
        if let Some(error) = &channel.gap_error {
            rows.push((vec![Cell::text("  gaps")], problem(error, now)));
        }
        rows.extend(channel.lanes.iter().map(|lane| lane_row(lane, channel.lanes.len() > 1, now)));
    }
    Table(rows)
}

/// The row of a sink. `with_pace` adds the sink's pace, which can differ from the channel's pace.
fn lane_row(lane: &LaneStatus, with_pace: bool, now: Timestamp) -> (Vec<Cell>, String) {
    let detail = trouble(lane, now);
    let left = lane.seconds_left.filter(|seconds| with_pace && *seconds >= NOTEWORTHY).zip(lane.events_per_second);
    let left = left.map(|(seconds, per_second)| format!("{}, about {} left", rate(per_second), span(seconds)));
    let detail = left.filter(|_| detail.is_empty()).unwrap_or(detail);
    let early_ack = lane.early_ack.iter().map(|why| format!("acknowledges early: {}", printable(why)));
    let excluded = Some(lane.without_confidence).filter(|events| *events > 0);
    let excluded = excluded
        .map(|events| format!("{events} events without a signed confidence not delivered (filter.min_confidence)"));
    let detail = Some(detail).filter(|detail| !detail.is_empty());
    let details: Vec<_> = detail.into_iter().chain(early_ack).chain(excluded).collect();
    let detail = details.join("; ");
    let mut cells = vec![
        Cell::text(format!("  {}", lane.sink)),
        Cell::new(style(lane.condition.level()), lane.condition.name_of_sink()),
        Cell::quantity(lane.cursor),
        Cell::text(""),
        Cell::quantity(lane.lag_events),
        Cell::quantity(oldest(lane.oldest_undelivered_seconds)),
    ];
    cells.resize(9, Cell::text(""));
    (cells, detail)
}

fn style(level: Level) -> Style {
    match level {
        Level::Good => GOOD,
        Level::Aside => ASIDE,
        Level::Behind | Level::Passing => PASSING,
        Level::NeedsAction => BAD,
    }
}

/// The reasons not to be ready that are about this channel.
pub(super) fn reasons_of<'a>(report: &'a Report, channel: &ChannelStatus) -> impl Iterator<Item = &'a NotReady> {
    report.not_ready.iter().filter(|reason| reason.channel.as_ref() == Some(&channel.channel))
}

/// The cause of a channel's condition: a reason not to be ready, the progress, a problem of a sink, or the activity.
pub(super) fn cause(report: &Report, channel: &ChannelStatus, now: Timestamp) -> String {
    if let Some(reason) = reasons_of(report, channel).next() {
        return printable(&reason.in_channel());
    }
    if let Some(progress) = channel.progress().filter(|_| channel.condition == Condition::Behind) {
        return format!("{} {:.0} %, {progress}", progress.bar(BAR), progress.share() * 100.0);
    }
    let own = activity(&channel.activity, now).0 == channel.condition.name();
    let lane = channel.lanes.iter().find(|lane| lane.condition == channel.condition);
    let lane = lane.filter(|_| !own && channel.condition > Condition::Ok);
    let Some(lane) = lane else { return reading(channel, now) };
    let trouble = trouble(lane, now);
    if trouble.is_empty() { format!("sink {}", lane.sink) } else { format!("sink {}: {trouble}", lane.sink) }
}

/// The problem of a sink. If the sink has no problem but has fallen behind and reads alone, the detail of this reading.
/// Otherwise empty.
pub(super) fn trouble(lane: &LaneStatus, now: Timestamp) -> String {
    match (&lane.error, &lane.reading) {
        // The remedy is among the reasons not to be ready.
        (Some(error), _) if error.needs_attention => {
            let message = split_remedy(&error.message).0.trim_end_matches('.').to_owned();
            problem(&Problem { message, ..error.clone() }, now)
        }
        (Some(error), _) => problem(error, now),
        (None, Some(reading)) => activity(reading, now).1,
        (None, None) => String::new(),
    }
}

/// The activity of a channel. If the word for the activity is also the name of the channel's condition, the text
/// contains only the detail.
fn reading(channel: &ChannelStatus, now: Timestamp) -> String {
    let (word, detail) = activity(&channel.activity, now);
    if word == channel.condition.name() { detail } else { described(&channel.activity, now) }
}

/// An activity with its detail.
pub(super) fn described(of: &Activity, now: Timestamp) -> String {
    let (word, detail) = activity(of, now);
    format!("{word} {detail}").trim_end().to_owned()
}

/// The word for an activity, and its detail as a text, which may be empty.
fn activity(activity: &Activity, now: Timestamp) -> (String, String) {
    let detail = match activity {
        Activity::AwaitingProof { offset } => format!("of the event at {offset}"),
        Activity::AwaitingTurn => {
            "for the next request: see api.requests_per_second, or the service has limited the request rate".to_owned()
        }
        Activity::AwaitingMemory => "until memory is free: see limits.memory".to_owned(),
        Activity::Elsewhere { owner: Some(owner) } => format!("in instance {owner}"),
        Activity::Elsewhere { owner: None } => "no instance owns it".to_owned(),
        _ => activity.problem().map_or_else(String::new, |error| problem(error, now)),
    };
    (<&str>::from(activity).replace('_', " "), detail)
}

pub(super) fn problem(problem: &Problem, now: Timestamp) -> String {
    let (times, since) = (problem.times, ago(problem.since, now));
    let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
    format!("{} ({times}, for {since})", printable(&problem.message))
}

/// The age of the oldest undelivered event, or `None` if nothing waits.
pub(super) fn oldest(seconds: Option<u64>) -> Option<String> {
    seconds.filter(|seconds| *seconds > 0).map(span)
}

/// The time since `then`, in the largest whole unit. It is zero if the clock was set back since then.
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    span(u64::try_from(now.as_second().saturating_sub(then.as_second())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use channel::LaneState;
    use operator::Process;
    use proof::event::Offset;
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[test]
    fn the_text_fits_a_terminal_and_keeps_every_word() {
        let at = Timestamp::from_second(1_000_000).unwrap();
        let message = "the database at warehouse.example refuses the connection: password authentication failed for role channeld";
        let error = Problem { message: message.into(), times: 12, since: at, kind: "x".into(), needs_attention: true };
        let lane = LaneStatus {
            sink: "warehouse".into(),
            cursor: Offset::new(1_234_567_890),
            error: Some(error),
            ..LaneStatus::default()
        };
        let channel = ChannelStatus {
            channel: "settlements-of-the-fund".into(),
            lag_events: Some(9_876_543),
            oldest_undelivered_seconds: Some(7_200),
            lanes: vec![lane],
            ..ChannelStatus::default()
        };
        let reasons = vec![format!("channel settlements-of-the-fund: sink warehouse: {message}")];
        let report = Report {
            daemon: Some(Process { pid: 1, started: at, log_lines_lost: 12 }),
            reasons,
            channels: vec![channel],
            ..Report::default()
        };
        let shown = |width| anstream::adapter::strip_str(&text(false, &report, width)).to_string();
        let (narrow, full) = (shown(Some(80)), shown(None));
        assert!(narrow.lines().all(|line| line.width() <= 80), "{narrow}");
        assert!(full.contains(&format!("  {message} (12 times, for")) && full.contains("QUARANTINED"), "{full}");
        assert!(full.contains("log: 12 lines lost"), "{full}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
        assert!(words(message).is_subset(&words(narrow.split_once("CHANNEL").unwrap().1)), "{narrow}");
        assert!(narrow.contains("LAG") && !narrow.contains("NEWEST"), "{narrow}");
    }

    #[test]
    fn each_reason_is_followed_by_its_remedy_and_is_not_repeated_in_full() {
        let problem = |message: &str| Problem {
            kind: "http".into(),
            message: message.into(),
            since: Timestamp::UNIX_EPOCH,
            times: 1,
            needs_attention: true,
        };
        let lane = |sink: &str, message: &str| LaneStatus {
            sink: sink.into(),
            error: Some(problem(message)),
            state: LaneState::Blocked,
            ..LaneStatus::default()
        };
        let dropped = "the table has no row. Nothing is delivered. To deliver again: `channeld pause c0`";
        let lanes = vec![lane("alerts", "answered 401"), lane("warehouse", dropped)];
        let channel = ChannelStatus { channel: "c0".into(), lanes, ..ChannelStatus::default() };
        let daemon = Some(Process { pid: 1, started: Timestamp::UNIX_EPOCH, log_lines_lost: 0 });
        let mut report = Report { daemon, channels: vec![channel], ..Report::default() };
        report.assess(Vec::new());
        let shown = anstream::adapter::strip_str(&text(false, &report, None)).to_string();
        for expected in [
            "  channel c0, sink alerts: answered 401\n    what to do: `401`, `403`: the endpoint does not accept",
            "Nothing is delivered.\n    what to do: To deliver again: `channeld pause c0`\n",
        ] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert_eq!(shown.matches("the table has no row").count(), 2, "the reason, and the row of the sink: {shown}");
        assert_eq!(shown.matches("`channeld pause c0`").count(), 1, "{shown}");
    }

    #[test]
    fn a_duration_is_shown_in_its_largest_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let cases = [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d"), (-5, "0 s")];
        for (seconds, said) in cases {
            assert_eq!(ago(Timestamp::from_second(1_000_000 - seconds).unwrap(), now), said);
        }
    }
}
