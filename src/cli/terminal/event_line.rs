//! One line per event, as `demo` and `tail` print it: in color and cut to the width of a terminal, otherwise in full.

use std::io;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use crate::cli::terminal::{fitting, padded, shortened, styled, width_of};
use record::Readable;

const VERIFIED: Style = AnsiColor::Green.on_default().bold();
const UNSIGNED: Style = AnsiColor::Yellow.on_default();
const PENDING: Style = AnsiColor::Cyan.on_default();
const REJECTED: Style = AnsiColor::Red.on_default().bold();
const QUIET: Style = Style::new().dimmed();
const PLAIN: Style = Style::new();

/// Maximum width of the channel column on a narrow terminal.
const CHANNEL: usize = 12;

/// A terminal with at least this number of columns besides the channel column shows complete times and proofs.
const WIDE: usize = 100;

/// The description of an event is padded to at most this many columns on a terminal.
const WHAT: usize = 40;

/// The description is padded to this many columns in a full line.
const FULL_WHAT: usize = 28;

/// If the description would get fewer columns than this, the type has no column of its own.
const NARROW_WHAT: usize = 30;

/// An event to print: the parts of its line, and whether sinks received events with higher offsets before it.
#[derive(Clone, Debug)]
pub(crate) struct EventLine {
    pub(crate) parts: Readable,
    pub(crate) is_late: bool,
}

/// Formats lines.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Columns of the terminal, or `None` if lines are written in full.
    width: Option<usize>,
    /// Columns for the channel's name, or `None` if the name is not shown.
    channel: Option<usize>,
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
        Self { width, channel: channels.into_iter().map(UnicodeWidthStr::width).max(), day: String::new() }
    }

    /// Adapts to the new width if the size of the terminal has changed.
    pub(crate) fn follow_terminal(&mut self) {
        if self.width.is_some() {
            self.width = width_of(&io::stdout());
        }
    }

    /// The event's line, with colors. If times are written without their day, a line with the day precedes the first
    /// event of each day.
    pub(crate) fn lines(&mut self, event: &EventLine) -> String {
        let width = self.width;
        match width {
            None => self.full(event),
            Some(width) if width >= WIDE + self.channel.unwrap_or(0) => cut(&self.wide(event, width), width),
            Some(width) => {
                let day = event.parts.time.split_once('T').map_or("", |(day, _)| day).to_owned();
                let line = cut(&self.narrow(event, width), width);
                if day.is_empty() || day == self.day {
                    return line;
                }
                let heading = styled(QUIET, &format!("{day} UTC"));
                self.day = day;
                format!("{heading}\n{line}")
            }
        }
    }

    /// The line as the format `text` has it.
    fn full(&self, event: &EventLine) -> String {
        let segments = self.segments(event, FULL_WHAT, self.channel, true);
        segments.iter().map(|(style, text)| styled(*style, text)).collect()
    }

    fn wide(&self, event: &EventLine, width: usize) -> Vec<(Style, String)> {
        // The verdict, offset, time, type and proof, with their separators.
        let fixed = 8 + 1 + 6 + 2 + 20 + 2 + 16 + 2 + 1 + if event.is_late { 24 } else { 18 };
        let what = width.saturating_sub(fixed + self.channel.map_or(0, |channel| channel + 1));
        self.segments(event, what.clamp(8, WHAT), self.channel, true)
    }

    fn narrow(&self, event: &EventLine, width: usize) -> Vec<(Style, String)> {
        let channel = self.channel.map(|channel| channel.min(CHANNEL));
        let fixed = 8 + 1 + channel.map_or(0, |channel| channel + 1) + 6 + 1 + 8 + 2 + 1 + 11;
        let what = width.saturating_sub(fixed);
        self.segments(event, what.clamp(8, WHAT + 18), channel, false)
    }

    fn segments(
        &self,
        EventLine { parts, is_late }: &EventLine,
        what_width: usize,
        channel_width: Option<usize>,
        is_full: bool,
    ) -> Vec<(Style, String)> {
        let Readable { verdict, channel, offset, time, kind, what, proof } = parts;
        let style = match &**verdict {
            "verified" => VERIFIED,
            "unsigned" => UNSIGNED,
            "pending" => PENDING,
            _ => REJECTED,
        };
        let mut segments = vec![(style, padded(verdict, 8)), (PLAIN, " ".to_owned())];
        if let Some(width) = channel_width {
            let channel = if self.width.is_some() { shortened(channel, width) } else { channel.clone() };
            segments.push((PLAIN, format!("{} ", padded(&channel, if self.width.is_some() { width } else { 0 }))));
        }
        segments.push((PLAIN, format!("{offset:>5} ")));
        if is_full {
            segments.push((QUIET, format!(" {time:<20}")));
            let what = if self.width.is_some() { shortened(what, what_width) } else { what.clone() };
            segments.push((PLAIN, format!("  {}  {} ", padded(kind, 16), padded(&what, what_width))));
            let late = if *is_late { ", late" } else { "" };
            segments.push((QUIET, format!("{proof}{late}")));
            return segments;
        }
        let of_day = time.split_once('T').map_or(&**time, |(_, rest)| rest.trim_end_matches('Z'));
        segments.push((QUIET, format!("{}  ", padded(&shortened(of_day, 8), 8))));
        let happened = if what_width.saturating_sub(18) >= NARROW_WHAT {
            format!("{}  {}", padded(&shortened(kind, 16), 16), shortened(what, what_width - 18))
        } else if kind == "watcher.event" && !what.is_empty() {
            shortened(what, what_width)
        } else if what.is_empty() {
            shortened(kind, what_width)
        } else {
            shortened(&format!("{kind}: {what}"), what_width)
        };
        segments.push((PLAIN, format!("{} ", padded(&happened, what_width))));
        let proof = proof.trim_end_matches(" signatures").trim_end_matches(", by its nature");
        segments.push((QUIET, format!("{proof}{}", if *is_late { " late" } else { "" })));
        segments
    }
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
