//! Draws the screen: the verdict (whether the daemon is ready), the reasons not to be ready, the channels, and the help for
//! the keys.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::style::{Color, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::navigation::{Model, ScreenPage};
use super::{help, list, page, trend};
use crate::cli::look::status::text::{ago, instance};
use crate::cli::terminal::{padded, shortened};
use crate::cli::verdict_line::printable;
use channel::{Level, counted, grouped};
use operator::Report;

/// Maximum number of lines for reasons: `MANY_REASONS` on a screen with at least `TALL` lines, otherwise `FEW_REASONS`.
const FEW_REASONS: usize = 3;
const MANY_REASONS: usize = 8;
const TALL: u16 = 40;

/// Draws the whole screen. Stores in the model how many rows fit.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, now: Timestamp) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut top = head(model, width, area.height >= TALL, now);
    let mut bottom = Vec::new();
    if model.page == ScreenPage::List {
        top.push(list::heading(model, width));
        bottom.extend(list::said(model, width, now));
    }
    // The verdict and the keys are always shown, even on a very small screen.
    let below = bottom.len() + 1;
    top.truncate(height.saturating_sub(below + 1).max(1));
    let room = height.saturating_sub(top.len() + below);
    let page = match &model.page {
        ScreenPage::List => None,
        ScreenPage::Channel(name) => Some(page::of_channel(model, name, width, now)),
        ScreenPage::Reasons => Some(page::of_reasons(model, width)),
        ScreenPage::Help => Some(help::lines(width)),
    };
    model.keep_in_view(page.as_ref().map_or(model.rows.len(), Vec::len), room);
    let mut middle: Vec<_> = match page {
        Some(lines) => lines.into_iter().skip(model.top).take(room).collect(),
        None => with_trend(model, list::rows(model, width, now), room, width),
    };
    bottom.push(keys(model, width));
    middle.resize(room.max(middle.len()), Line::default());
    frame.render_widget(Paragraph::new([top, middle, bottom].concat()), area);
}

/// Adds the trend of the selected channel below the rows of the list, if enough lines are free.
fn with_trend(model: &Model, mut rows: Vec<Line<'static>>, room: usize, width: usize) -> Vec<Line<'static>> {
    let Some((name, samples)) = model.trend() else { return rows };
    let lines = trend::lines(samples, width);
    // One line for the heading, and one that stays empty.
    let above = room.saturating_sub(lines.len() + 1);
    if !lines.is_empty() && rows.len() < above {
        rows.resize(above, Line::default());
        let period = trend::period(samples).unwrap_or_default();
        rows.push(Line::from(shortened(&format!("{}, {period}", printable(name)), width)).bold());
        rows.extend(lines);
    }
    rows
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

/// The bottom line: the help for the keys, and the visible part of the list or page.
fn keys(model: &Model, width: usize) -> Line<'static> {
    let text = if let Some(question) = &model.question {
        question.text()
    } else if let Some(notice) = &model.notice {
        printable(notice)
    } else if model.is_typing {
        format!("channels with: {}_   enter done  esc all", model.name)
    } else if model.page == ScreenPage::List {
        let (order, which) = (<&str>::from(model.order), <&str>::from(model.filter));
        let name = if model.name.is_empty() { "find".to_owned() } else { format!("find: {}", model.name) };
        format!("q quit  ? help  enter page  p pause  s: {order}  f: {which}  / {name}")
    } else if matches!(model.page, ScreenPage::Channel(_)) {
        "q quit  ? help  esc back  up/down, space: scroll  p pause".to_owned()
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
