//! The list of channels, with the sinks of each channel if all of them fit on the screen.

use jiff::Timestamp;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::navigation::Model;
use super::page::colour;
use crate::cli::look::status::text::{ago, cause, oldest, trouble};
use crate::cli::terminal::{padded, shortened};
use crate::cli::verdict_line::printable;
use channel::{ChannelStatus, LaneStatus, Level, rate, span};

const NAMES: usize = 32;

/// The detail text after a channel's figures is left out if it would get fewer columns than this.
const DETAIL: usize = 16;

const STATE: usize = 15;

/// A column of the list. It is shown if the screen has at least `from` columns.
pub(super) struct Column {
    pub(super) heading: &'static str,
    width: usize,
    from: usize,
    of_channel: OfChannel,
    of_sink: OfSink,
    pub(super) about: &'static str,
}

type OfChannel = fn(&ChannelStatus, Timestamp) -> Option<String>;
type OfSink = fn(&LaneStatus) -> Option<String>;

impl Column {
    const fn new(
        heading: &'static str,
        (width, from): (usize, usize),
        of_channel: OfChannel,
        of_sink: OfSink,
        about: &'static str,
    ) -> Self {
        Self { heading, width, from, of_channel, of_sink, about }
    }

    fn shown(&self, value: Option<String>) -> String {
        format!(" {:>1$}", shortened(&value.unwrap_or_else(|| "-".to_owned()), self.width), self.width)
    }
}

pub(super) const COLUMNS: [Column; 9] = [
    Column::new(
        "CURSOR",
        (10, 60),
        |channel, _| channel.cursor.map(|it| it.to_string()),
        |lane| lane.cursor.map(|it| it.to_string()),
        "the highest offset up to which every event is delivered, pending or in the quarantine",
    ),
    Column::new(
        "NEWEST",
        (10, 120),
        |channel, _| channel.newest.map(|it| it.to_string()),
        |_| Some(String::new()),
        "the offset of the newest event that the service has shown",
    ),
    Column::new(
        "LAG",
        (8, 40),
        |channel, _| channel.lag_events.map(|it| compact(it, 8)),
        |lane| lane.lag_events.map(|it| compact(it, 8)),
        "how many offsets the cursor is below the newest event",
    ),
    Column::new(
        "RATE",
        (9, 110),
        |channel, _| channel.events_per_second.map(rate),
        |lane| lane.events_per_second.map(rate),
        "offsets per second, while the channel or the sink catches up",
    ),
    Column::new(
        "LEFT",
        (6, 66),
        |channel, _| channel.seconds_left.map(span),
        |lane| lane.seconds_left.map(span),
        "the estimated time until it has caught up",
    ),
    Column::new(
        "OLDEST",
        (6, 110),
        |channel, _| oldest(channel.oldest_undelivered_seconds),
        |lane| oldest(lane.oldest_undelivered_seconds),
        "how long the oldest undelivered event has been waiting",
    ),
    Column::new(
        "POLL",
        (6, 50),
        |channel, now| channel.last_poll.map(|at| ago(at, now)),
        |_| Some(String::new()),
        "the time since the service last answered",
    ),
    Column::new(
        "PEND",
        (5, 76),
        |channel, _| some(channel.pending),
        |lane| some(lane.late_deliveries),
        "events without a proof so far; for a sink, its late deliveries that are due",
    ),
    Column::new(
        "QUAR",
        (5, 72),
        |channel, _| some(channel.quarantined),
        |_| Some(String::new()),
        "rejected events in the quarantine",
    ),
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

/// How the width of the screen is divided.
struct Layout {
    columns: Vec<&'static Column>,
    names: usize,
    /// The width of the detail text, 0 if it is left out.
    detail: usize,
}

impl Layout {
    fn of(model: &Model, width: usize) -> Self {
        let columns: Vec<_> = COLUMNS.iter().filter(|column| width >= column.from).collect();
        let figures: usize = columns.iter().map(|column| column.width + 1).sum::<usize>() + STATE + 1;
        let left = width.saturating_sub(figures);
        let names = model.report.iter().flat_map(|report| &report.channels).map(|channel| {
            let sinks = channel.lanes.iter().map(|lane| lane.sink.width() + 2);
            sinks.chain([channel.channel.width()]).max().unwrap_or(0)
        });
        let names = names.max().unwrap_or(0).clamp("CHANNEL".len(), NAMES).min(left);
        let detail = left.saturating_sub(names + 2);
        Self { columns, names, detail: if detail >= DETAIL { detail } else { 0 } }
    }

    fn row(
        &self,
        name: &str,
        (state, level): (&str, Level),
        figures: impl Iterator<Item = String>,
        detail: &str,
    ) -> Line<'static> {
        let Self { names, .. } = *self;
        let mut spans = vec![
            Span::raw(format!("{} ", padded(&shortened(&printable(name), names), names))),
            Span::styled(padded(&shortened(state, STATE), STATE), colour(level)),
            Span::raw(figures.collect::<String>()),
        ];
        if self.detail > 0 {
            spans.push(format!("  {}", padded(&shortened(detail, self.detail), self.detail)).dim());
        }
        Line::from(spans)
    }
}

pub(super) fn heading(model: &Model, width: usize) -> Line<'static> {
    let Layout { columns, names, detail } = Layout::of(model, width);
    let figures: Vec<_> = columns.iter().map(|column| format!(" {:>1$}", column.heading, column.width)).collect();
    let what = if detail > 0 { "  WHAT" } else { "" };
    let text = format!("{:<names$} {:<STATE$}{}{what}", shortened("CHANNEL", names), "STATE", figures.concat());
    Line::from(padded(&shortened(&text, width), width)).bold().underlined()
}

/// The visible rows of the list.
pub(super) fn rows(model: &Model, width: usize, now: Timestamp) -> Vec<Line<'static>> {
    let Some(report) = &model.report else { return Vec::new() };
    if model.rows.is_empty() {
        return vec![Line::from(shortened("no channel matches the filters: esc shows all", width))];
    }
    let layout = Layout::of(model, width);
    let with_sinks = model.sinks_fit();
    let mut lines = Vec::new();
    for (row, at) in model.rows.iter().enumerate().skip(model.top).take(model.room) {
        let channel = &report.channels[*at];
        let cause = cause(report, channel, now);
        let figures = layout.columns.iter().map(|column| column.shown((column.of_channel)(channel, now)));
        let condition = (&*channel.condition.name(), channel.condition.level());
        let mut line = layout.row(&channel.channel, condition, figures, &cause);
        if row == model.selected {
            // Reversed across the whole width, so that the selection is visible without colors.
            line.push_span(" ".repeat(width.saturating_sub(line.width())));
            line = line.reversed();
        }
        lines.push(line);
        for lane in channel.lanes.iter().filter(|_| with_sinks) {
            let figures = layout.columns.iter().map(|column| column.shown((column.of_sink)(lane)));
            let condition = (&*lane.condition.name_of_sink(), lane.condition.level());
            // The row of the channel may already show the problem of the sink.
            let trouble = Some(trouble(lane, now)).filter(|trouble| !cause.contains(trouble)).unwrap_or_default();
            lines.push(layout.row(&format!("  {}", lane.sink), condition, figures, &trouble));
        }
    }
    lines
}

/// A line with the detail text of the selected channel. It is empty if the row shows the text in full.
pub(super) fn said(model: &Model, width: usize, now: Timestamp) -> Option<Line<'static>> {
    let channel = model.at_selected()?;
    let cause = cause(model.report.as_ref()?, channel, now);
    let is_cut = cause.width() > Layout::of(model, width).detail;
    let text = if is_cut { format!("{}: {cause}", printable(&channel.channel)) } else { String::new() };
    Some(Line::styled(shortened(&text, width), colour(channel.condition.level())))
}
