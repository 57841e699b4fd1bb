//! Draws the screen: the verdict (whether the daemon is ready), the reasons not to be ready, the channels, and the help for
//! the keys.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::navigation::{Model, ScreenPage};
use super::page::{self, colour};
use crate::cli::look::status::text::{ago, cause, instance, oldest};
use crate::cli::terminal::{padded, shortened};
use crate::cli::verdict_line::printable;
use channel::{ChannelStatus, Level, counted, grouped, rate, span};
use operator::Report;

/// Maximum number of lines for reasons: `MANY_REASONS` on a screen with at least `TALL` lines, otherwise `FEW_REASONS`.
const FEW_REASONS: usize = 3;
const MANY_REASONS: usize = 8;
const TALL: u16 = 40;

const NAMES: usize = 32;

/// The detail text after a channel's figures is left out if it would get fewer columns than this.
const DETAIL: usize = 16;

/// Draws the whole screen. Stores in the model how many rows fit.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, now: Timestamp) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut top = head(model, width, area.height >= TALL, now);
    let mut bottom = Vec::new();
    if model.page == ScreenPage::List {
        top.push(heading(model, width));
        bottom.extend(said(model, width, now));
    }
    // The verdict and the keys are always shown, even on a very small screen.
    let below = bottom.len() + 1;
    top.truncate(height.saturating_sub(below + 1).max(1));
    let room = height.saturating_sub(top.len() + below);
    let page = match &model.page {
        ScreenPage::List => None,
        ScreenPage::Channel(name) => Some(page::of_channel(model, name, width, now)),
        ScreenPage::Reasons => Some(page::of_reasons(model, width)),
    };
    model.keep_in_view(page.as_ref().map_or(model.rows.len(), Vec::len), room);
    let mut middle: Vec<_> = match page {
        Some(lines) => lines.into_iter().skip(model.top).take(room).collect(),
        None => rows(model, width, now),
    };
    bottom.push(keys(model, width));
    middle.resize(room.max(middle.len()), Line::default());
    frame.render_widget(Paragraph::new([top, middle, bottom].concat()), area);
}

/// The verdict, the reasons not to be ready, and the number of channels with each kind of condition.
fn head(model: &Model, width: usize, is_tall: bool, now: Timestamp) -> Vec<Line<'static>> {
    let mut lines = vec![verdict(model, width, now)];
    let Some(report) = &model.report else { return lines };
    if !report.instances.is_empty() {
        let instances: Vec<_> = report.instances.iter().map(instance).collect();
        lines.push(Line::from(shortened(&format!("instances: {}", printable(&instances.join(", "))), width)));
    }
    if model.page == ScreenPage::List {
        lines.extend(reasons(report, width, if is_tall { MANY_REASONS } else { FEW_REASONS }));
        lines.extend(
            report
                .warnings
                .iter()
                .take(FEW_REASONS)
                .map(|warning| Line::from(shortened(&format!("  warning: {}", printable(warning)), width)).yellow()),
        );
    }
    lines.push(summary(report, width));
    if is_tall {
        lines.push(Line::default());
    }
    lines
}

fn verdict(model: &Model, width: usize, now: Timestamp) -> Line<'static> {
    let badge = |text: &str, colour| format!(" {text} ").black().bg(colour).bold();
    let (badge, text) = match (&model.failure, &model.report) {
        (Some(failure), _) => (badge("NO ANSWER", Color::Red), printable(failure)),
        (None, None) => (badge("...", Color::Cyan), "asking the daemon".to_owned()),
        (None, Some(report)) => {
            let badge = if report.ready { badge("READY", Color::Green) } else { badge("NOT READY", Color::Red) };
            let text = match report.daemon {
                Some(daemon) => {
                    let (version, up) = (&report.version, ago(daemon.started, now));
                    format!("process {}, up {up}, channeld {version}", daemon.pid)
                }
                None => "no instance runs on this machine".to_owned(),
            };
            (badge, text)
        }
    };
    let left = width.saturating_sub(badge.content.width() + 1);
    Line::from(vec![badge, Span::raw(format!(" {}", shortened(&text, left)))])
}

/// The first reasons, one per line, and the number of further reasons.
fn reasons(report: &Report, width: usize, most: usize) -> Vec<Line<'static>> {
    let all = report.reasons.len();
    let shown = if all > most { most - 1 } else { all };
    let mut lines: Vec<_> = report.reasons.iter().take(shown).map(|reason| printable(reason)).collect();
    if all > shown {
        lines.push(format!("and {} more: r shows them", all - shown));
    }
    lines.iter().map(|line| Line::from(shortened(&format!("  {line}"), width)).red()).collect()
}

fn summary(report: &Report, width: usize) -> Line<'static> {
    let whole = |number: usize| grouped(u64::try_from(number).unwrap_or(u64::MAX));
    let mut parts = vec![counted(report.channels.len() as u64, "channel")];
    let levels = [
        (Level::NeedsAction, "in trouble"),
        (Level::Passing, "waiting"),
        (Level::Behind, "lagging"),
        (Level::Aside, "inactive"),
    ];
    for (level, how) in levels {
        let count = report.channels.iter().filter(|channel| channel.condition.level() == level).count();
        parts.extend((count > 0).then(|| format!("{} {how}", whole(count))));
    }
    for (kept, what) in [(report.quarantine, "quarantined"), (report.dead_letters, "dead letters")] {
        if kept.events > 0 {
            parts.push(format!("{} {what}{}", grouped(kept.events), if kept.full { " (full)" } else { "" }));
        }
    }
    Line::from(shortened(&parts.join(", "), width)).dim()
}

/// A column of the list. It is shown if the screen has at least `from` columns.
struct Column {
    heading: &'static str,
    width: usize,
    from: usize,
    value: fn(&ChannelStatus, Timestamp) -> Option<String>,
}

const STATE: usize = 15;

const COLUMNS: [Column; 9] = [
    Column { heading: "CURSOR", width: 10, from: 60, value: |channel, _| channel.cursor.map(|it| it.to_string()) },
    Column { heading: "NEWEST", width: 10, from: 120, value: |channel, _| channel.newest.map(|it| it.to_string()) },
    Column { heading: "LAG", width: 8, from: 40, value: |channel, _| channel.lag_events.map(|it| compact(it, 8)) },
    Column { heading: "RATE", width: 9, from: 110, value: |channel, _| channel.events_per_second.map(rate) },
    Column { heading: "LEFT", width: 6, from: 66, value: |channel, _| channel.seconds_left.map(span) },
    Column { heading: "OLDEST", width: 6, from: 110, value: |channel, _| oldest(channel.oldest_undelivered_seconds) },
    Column { heading: "POLL", width: 6, from: 50, value: |channel, now| channel.last_poll.map(|at| ago(at, now)) },
    Column { heading: "PEND", width: 5, from: 76, value: |channel, _| some(channel.pending) },
    Column { heading: "QUAR", width: 5, from: 72, value: |channel, _| some(channel.quarantined) },
];

fn some(count: usize) -> Option<String> {
    (count > 0).then(|| compact(u64::try_from(count).unwrap_or(u64::MAX), 5))
}

/// A number shortened to `width` columns: `1234`, `12k`, `3M`.
fn compact(number: u64, width: usize) -> String {
    let in_units = |(unit, name): (u64, &str)| format!("{}{name}", number / unit);
    let shapes = [(1, ""), (1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G")].map(in_units);
    shapes.iter().find(|shape| shape.len() <= width).unwrap_or(&shapes[3]).clone()
}

/// The columns that are shown, the width of the names, and the width of the detail text (0 if it is left out).
fn columns(model: &Model, width: usize) -> (Vec<&'static Column>, usize, usize) {
    let columns: Vec<_> = COLUMNS.iter().filter(|column| width >= column.from).collect();
    let figures: usize = columns.iter().map(|column| column.width + 1).sum::<usize>() + STATE + 1;
    let left = width.saturating_sub(figures);
    let channels = model.report.iter().flat_map(|report| &report.channels);
    let longest = channels.map(|channel| channel.channel.width()).max().unwrap_or(0).clamp("CHANNEL".len(), NAMES);
    let names = longest.min(left);
    let detail = left.saturating_sub(names + 2);
    (columns, names, if detail >= DETAIL { detail } else { 0 })
}

fn heading(model: &Model, width: usize) -> Line<'static> {
    let (columns, names, detail) = columns(model, width);
    let figures: Vec<_> = columns.iter().map(|column| format!(" {:>1$}", column.heading, column.width)).collect();
    let what = if detail > 0 { "  WHAT" } else { "" };
    let text = format!("{:<names$} {:<STATE$}{}{what}", shortened("CHANNEL", names), "STATE", figures.concat());
    Line::from(padded(&shortened(&text, width), width)).bold().underlined()
}

/// The visible rows of the list.
fn rows(model: &Model, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let Some(report) = &model.report else { return Vec::new() };
    if model.rows.is_empty() {
        return vec![Line::from(shortened("no channel matches the filters: esc shows all", width))];
    }
    let (columns, names, detail) = columns(model, width);
    let line = |(row, at): (usize, &usize)| {
        let channel = &report.channels[*at];
        let name = padded(&shortened(&printable(&channel.channel), names), names);
        let state = padded(&shortened(&channel.condition.name(), STATE), STATE);
        let figure = |column: &&Column| {
            let value = (column.value)(channel, now).unwrap_or_else(|| "-".to_owned());
            format!(" {:>1$}", shortened(&value, column.width), column.width)
        };
        let mut spans = vec![Span::raw(format!("{name} ")), Span::styled(state, colour(channel.condition.level()))];
        spans.push(Span::raw(columns.iter().map(figure).collect::<Vec<_>>().concat()));
        if detail > 0 {
            let cause = cause(report, channel, now);
            spans.push(format!("  {}", padded(&shortened(&cause, detail), detail)).dim());
        }
        let mut line = Line::from(spans);
        if row == model.selected {
            // Reversed across the whole width, so that the selection is visible without colors.
            line.push_span(" ".repeat(width.saturating_sub(line.width())));
            line = line.reversed();
        }
        line
    };
    model.rows.iter().enumerate().skip(model.top).take(model.room).map(line).collect()
}

/// A line with the detail text of the selected channel. It is empty if the row shows the text in full.
fn said(model: &Model, width: usize, now: Timestamp) -> Option<Line<'static>> {
    let (_, _, detail) = columns(model, width);
    let channel = model.at_selected()?;
    let cause = cause(model.report.as_ref()?, channel, now);
    let is_cut = cause.width() > detail;
    let text = if is_cut { format!("{}: {cause}", printable(&channel.channel)) } else { String::new() };
    Some(Line::styled(shortened(&text, width), colour(channel.condition.level())))
}

/// The bottom line: the help for the keys, and the visible part of the list or page.
fn keys(model: &Model, width: usize) -> Line<'static> {
    let text = if model.is_typing {
        format!("channels with: {}_   enter done  esc all", model.name)
    } else if model.page == ScreenPage::List {
        let (order, which) = (<&str>::from(model.order), <&str>::from(model.filter));
        let name = if model.name.is_empty() { "find".to_owned() } else { format!("find: {}", model.name) };
        format!("q quit  enter page  s sort: {order}  f show: {which}  / {name}  r reasons")
    } else {
        "q quit  esc back  up/down, space: scroll".to_owned()
    };
    let (first, all) = (model.top, model.lines);
    let last = (first + model.room).min(all);
    let part = if all > model.room { format!("{}-{last} of {all}", first + 1) } else { String::new() };
    let left = width.saturating_sub(part.width() + 1);
    let line = format!("{} {part}", padded(&shortened(&text, left), left));
    Line::from(shortened(&line, width)).reversed()
}
