//! Formats an event as one line for `demo` and `tail`: in color and cut to the width of a terminal, or in full if the
//! output is not a terminal.

use std::io;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use crate::cli::terminal::{QUIET, fitting, padded, shortened, styled, width_of};
use record::Readable;

const VERIFIED: Style = AnsiColor::Green.on_default().bold();
const UNSIGNED: Style = AnsiColor::Yellow.on_default();
const PENDING: Style = AnsiColor::Cyan.on_default();
const REJECTED: Style = AnsiColor::Red.on_default().bold();
const PLAIN: Style = Style::new();

/// Maximum width of the channel column on a narrow terminal.
const CHANNEL: usize = 12;

/// If a terminal has at least this number of columns in addition to the channel column, lines are written with complete
/// times and proofs.
const WIDE: usize = 100;

/// Maximum width of the description of an event on a terminal.
const WHAT: usize = 40;

/// The width to which descriptions are padded if the output is not a terminal.
const FULL_WHAT: usize = 28;

/// If the description would get fewer columns than this, the type has no column of its own.
const NARROW_WHAT: usize = 30;

/// An event to print: the parts of its line, and whether sinks received events with higher offsets before it.
#[derive(Clone, Debug)]
pub(crate) struct EventLine {
    pub(crate) parts: Readable,
    /// The position of the event in a feed. It is shown instead of the offset.
    pub(crate) position: Option<i64>,
    pub(crate) is_late: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Columns of the terminal, or `None` if lines are written in full.
    width: Option<usize>,
    /// Columns for the channel's name, or `None` if the name is not shown.
    channel: Option<usize>,
    /// The width of the widest confidence so far. It is kept free in each line, so that the columns of all events align.
    confidence: usize,
    /// The day of the last line, if times are written without their day.
    day: String,
}

impl Layout {
    /// For standard output, which may be a terminal. Without channels, the lines have no channel column.
    pub(crate) fn of_stdout<'a>(channels: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(width_of(&io::stdout()), channels)
    }

    /// For a terminal of this width or, without a width, for a program.
    pub(crate) fn of<'a>(width: Option<usize>, channels: impl IntoIterator<Item = &'a str>) -> Self {
        Self { width, channel: channels.into_iter().map(UnicodeWidthStr::width).max(), ..Self::default() }
    }

    /// Adapts to the new width if the size of the terminal has changed.
    pub(crate) fn follow_terminal(&mut self) {
        if self.width.is_some() {
            self.width = width_of(&io::stdout());
        }
    }

    /// The event's line, with colors. On a narrow terminal, times are written without their day, and a line with the day
    /// precedes the first event of each day.
    pub(crate) fn lines(&mut self, event: &EventLine) -> String {
        self.confidence = self.confidence.max(event.parts.confidence.width());
        let Some(width) = self.width else { return cut(&self.full(event), usize::MAX) };
        if width >= WIDE + self.channel.unwrap_or(0) {
            return cut(&self.full(event), width);
        }
        let line = cut(&self.narrow(event, width), width);
        let day = event.parts.time.split_once('T').map_or("", |(day, _)| day);
        if day.is_empty() || day == self.day {
            return line;
        }
        day.clone_into(&mut self.day);
        format!("{}\n{line}", styled(QUIET, &format!("{day} UTC")))
    }

    /// The line with the complete time, type and proof. If the output is not a terminal, the line equals the record in the
    /// format `text`.
    fn full(&self, event: &EventLine) -> Vec<(Style, String)> {
        let EventLine { parts, is_late, .. } = event;
        let Readable { time, kind, what, .. } = parts;
        let what = match self.width {
            None => padded(what, FULL_WHAT),
            Some(width) => {
                // The verdict, offset, time, type and proof, with their separators.
                let late = if *is_late { 24 } else { 18 };
                let confidence = if self.confidence == 0 { 0 } else { self.confidence + 2 };
                let fixed = 8 + 1 + 6 + 2 + 20 + 2 + 16 + 2 + 1 + late + confidence;
                let left = width.saturating_sub(fixed + self.channel.map_or(0, |channel| channel + 1)).clamp(8, WHAT);
                padded(&shortened(what, left), left)
            }
        };
        let [verdict, place] = self.begin(event, self.channel);
        vec![
            verdict,
            place,
            (QUIET, format!(" {time:<20}")),
            (PLAIN, format!("  {}  {what} ", padded(kind, 16))),
            (QUIET, proof([&parts.proof, &parts.confidence], *is_late, ", ")),
        ]
    }

    /// The line with the time of day. The type has a column of its own only if the terminal is wide enough.
    fn narrow(&self, event: &EventLine, width: usize) -> Vec<(Style, String)> {
        let EventLine { parts, is_late, .. } = event;
        let Readable { time, kind, what, .. } = parts;
        let channel = self.channel.map(|channel| channel.min(CHANNEL));
        let confidence = if self.confidence == 0 { 0 } else { self.confidence + 1 };
        let fixed = 8 + 1 + channel.map_or(0, |channel| channel + 1) + 6 + 1 + 8 + 2 + 1 + 11 + confidence;
        let left = width.saturating_sub(fixed).clamp(8, WHAT + 18);
        let happened = if left.saturating_sub(18) >= NARROW_WHAT {
            format!("{}  {}", padded(&shortened(kind, 16), 16), shortened(what, left - 18))
        } else if what.is_empty() {
            shortened(kind, left)
        } else if kind.is_empty() || kind == "watcher.event" {
            shortened(what, left)
        } else {
            shortened(&format!("{kind}: {what}"), left)
        };
        let of_day = time.split_once('T').map_or(&**time, |(_, rest)| rest.trim_end_matches('Z'));
        let signatures = parts.proof.trim_end_matches(" signatures").trim_end_matches(", by its nature");
        let [verdict, place] = self.begin(event, channel);
        vec![
            verdict,
            place,
            (QUIET, format!("{}  ", padded(&shortened(of_day, 8), 8))),
            (PLAIN, format!("{} ", padded(&happened, left))),
            (QUIET, proof([signatures, &parts.confidence], *is_late, " ")),
        ]
    }

    /// The first columns: the verdict, the channel's name if it is shown, and the offset or position.
    fn begin(&self, EventLine { parts, position, .. }: &EventLine, width: Option<usize>) -> [(Style, String); 2] {
        let Readable { verdict, channel, offset, .. } = parts;
        let style = match &**verdict {
            "verified" => VERIFIED,
            "unsigned" => UNSIGNED,
            "pending" => PENDING,
            _ => REJECTED,
        };
        let channel = match width {
            None => String::new(),
            Some(width) if self.width.is_some() => format!("{} ", padded(&shortened(channel, width), width)),
            Some(_) => format!("{channel} "),
        };
        let number = position.map_or_else(|| offset.to_string(), |position| position.to_string());
        [(style, padded(verdict, 8)), (PLAIN, format!(" {channel}{number:>5} "))]
    }
}

/// The signatures, the confidence, and whether the event was late.
fn proof([signatures, confidence]: [&str; 2], is_late: bool, between: &str) -> String {
    let late = if is_late { "late" } else { "" };
    let shown = [signatures, confidence, late].into_iter().filter(|part| !part.is_empty());
    shown.collect::<Vec<_>>().join(between)
}

/// The segments in their styles, cut to `width` columns.
fn cut(segments: &[(Style, String)], width: usize) -> String {
    let (mut line, mut room) = (String::new(), width);
    for (style, text) in segments {
        let text = fitting(text, room);
        room -= text.width();
        line.push_str(&styled(*style, &text));
    }
    line
}

#[cfg(test)]
mod tests;
