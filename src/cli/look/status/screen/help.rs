//! The page that explains the keys, the columns and the colors.

use ratatui::style::Style;
use ratatui::text::Line;

use super::list::COLUMNS;
use super::page::{HEADING, colour, wrapped};
use channel::Level;

/// Columns of a key or a heading before its explanation.
const NAME: usize = 14;

const KEYS: [(&str, &str); 10] = [
    ("up, down", "select a channel, or scroll a page; also k and j, space, page up and page down, home and end"),
    ("enter", "open the page of the channel: complete errors, sinks, signers and the last hour"),
    ("esc", "go back; in the list, show all channels"),
    ("p", "pause or resume the channel or one of its sinks; a second key confirms"),
    ("s", "change the order: problems first, by name, by lag, by the oldest undelivered event"),
    ("f", "change which channels are shown: all, in trouble, behind, paused"),
    ("/", "show only channels whose names contain a text"),
    ("r", "show every reason why the daemon is not ready"),
    ("?", "show this help"),
    ("q", "quit; also ctrl-c; ctrl-z suspends the screen"),
];

const COLOURS: [(&str, Level, &str); 4] = [
    ("green", Level::Good, "works"),
    ("cyan", Level::Aside, "paused by an operator, or run by another instance"),
    ("yellow", Level::Passing, "catches up, or has a problem that should end by itself"),
    ("red", Level::NeedsAction, "needs you: open the channel, or run `channeld explain` with the reason"),
];

pub(super) fn lines(width: usize) -> Vec<Line<'static>> {
    let plain = Style::new();
    let about = |name: &str, about: &str, style| wrapped(&format!("{name:<NAME$}"), about, width, style);
    let heading = |text: &'static str| [Line::default(), Line::styled(text, HEADING)];
    let mut lines = vec![Line::styled("KEYS", HEADING)];
    lines.extend(KEYS.into_iter().flat_map(|(key, text)| about(key, text, plain)));
    lines.extend(heading("COLUMNS, some only on a wide screen"));
    lines.extend(about("STATE", "the worst condition of the channel and its sinks", plain));
    lines.extend(COLUMNS.iter().flat_map(|column| about(column.heading, column.about, plain)));
    lines.extend(about("WHAT", "the cause of the state; the page of the channel shows the complete text", plain));
    lines.extend(heading("COLORS OF STATES"));
    lines.extend(COLOURS.into_iter().flat_map(|(name, level, text)| about(name, text, colour(level))));
    lines
}
