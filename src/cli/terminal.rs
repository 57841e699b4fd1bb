//! Text for a terminal: colors, the width of the terminal, texts that are cut or wrapped to a width, tables, and pagers.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(super) mod event_line;
pub(super) mod pager;
pub(super) mod progress;
pub(super) mod table;

pub(super) use table::{Cell, Table};

/// A state without a problem.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();

/// A problem that ends without an operator.
pub(super) const PASSING: Style = AnsiColor::Yellow.on_default();

/// A problem that an operator must solve.
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// A state that an operator has requested.
pub(super) const ASIDE: Style = AnsiColor::Cyan.on_default();

/// A text of less importance.
pub(super) const QUIET: Style = Style::new().dimmed();

/// A text for standard output. Its colors are removed unless standard output is a terminal that accepts colors.
pub(super) fn for_stdout(text: &str) -> String {
    if AutoStream::choice(&io::stdout()) == ColorChoice::Never {
        return anstream::adapter::strip_str(text).to_string();
    }
    text.to_owned()
}

/// The text as one word of a shell command that a person copies.
pub(super) fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@%+=,".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A JSON document for standard output: indented on a terminal, otherwise on one line.
pub(super) fn json_for_stdout(document: &impl Serialize) -> String {
    let write = if io::stdout().is_terminal() { serde_json::to_string_pretty } else { serde_json::to_string };
    write(document).expect("the keys of a document are strings")
}

/// An error message for standard error. On a terminal, `begins` is red and no line is wider than the terminal.
pub(super) fn failure_for_stderr(begins: &str, text: &str) -> String {
    let width = width_of(&io::stderr()).unwrap_or(usize::MAX);
    let fitted = |line: &str| if line.width() <= width { vec![line.to_owned()] } else { wrapped(line, width) };
    let text = text.lines().flat_map(fitted).collect::<Vec<_>>().join("\n");
    match text.strip_prefix(begins) {
        Some(rest) => styled(BAD, begins) + rest,
        // `begins` is longer than a line, so it was wrapped.
        None => text,
    }
}

pub(super) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// The columns of a terminal, or `None` if the stream is not a terminal.
pub(super) fn width_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok().filter(|_| stream.is_terminal())?;
    // A terminal that does not report its width is assumed to have 80 columns.
    Some(if size.ws_col == 0 { 80 } else { size.ws_col.into() })
}

/// The columns of standard output: the variable `COLUMNS`, which `watch` also sets, or the width of the terminal. `None` if the
/// width is not limited.
pub(super) fn width_of_stdout() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
    columns.or_else(|| width_of(&io::stdout()))
}

/// The lines of the terminal, or `None` if standard output is not a terminal.
pub(super) fn lines_of_stdout() -> Option<usize> {
    let stdout = io::stdout();
    let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| stdout.is_terminal())?;
    // A terminal that does not report its height is assumed to have 24 lines.
    Some(if size.ws_row == 0 { 24 } else { size.ws_row.into() })
}

pub(super) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// The beginning of a text, at most `width` columns wide. A `…` replaces the part that is cut off.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = fitting(text, width.saturating_sub(1));
    short.extend((width > 0).then_some('…'));
    short
}

/// The longest beginning of a text that fits into `width` columns.
pub(super) fn fitting(text: &str, width: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= width
    };
    text.chars().take_while(fits).collect()
}

/// Wraps a text between words. A word that is longer than a line is broken.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ').flat_map(|word| pieces(word, width)) {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(&word);
    }
    lines.push(line);
    lines
}

/// A text with this style, wrapped into lines of at most `width` columns. Further lines have a larger indentation than the first.
pub(super) fn wrapped_and_styled(style: Style, text: &str, width: usize) -> Vec<String> {
    const FURTHER: usize = 2;
    let plain = anstream::adapter::strip_str(text).to_string();
    if plain.width() <= width {
        return vec![styled(style, text)];
    }
    let words = plain.trim_start_matches(' ');
    let indent = plain.len() - words.len();
    let lines = wrapped(words, width.saturating_sub(indent + FURTHER));
    let indented = lines.iter().enumerate().map(|(at, line)| {
        let indent = if at == 0 { indent } else { indent + FURTHER };
        format!("{}{}", " ".repeat(indent), styled(style, line))
    });
    indented.collect()
}

fn pieces(word: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in word.chars() {
        let last = pieces.last_mut().expect("one exists from the start");
        if !last.is_empty() && last.width() + c.width().unwrap_or(0) > width {
            pieces.push(c.to_string());
        } else {
            last.push(c);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_wrapped_between_words_and_a_long_word_is_broken() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("one twothreefour", 5), ["one", "twoth", "reefo", "ur"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("one two", usize::MAX), ["one two"]);
    }

    #[test]
    fn further_lines_are_indented() {
        let lines = |width| wrapped_and_styled(Style::new(), "  one two three", width);
        assert_eq!(lines(80), ["  one two three"]);
        assert_eq!(lines(11), ["  one two", "    three"]);
    }

    #[test]
    fn a_text_is_quoted_only_if_a_shell_would_change_it() {
        for (text, word) in [
            ("/run/feed.sock", "/run/feed.sock"),
            ("/my files/token", "'/my files/token'"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(text), word);
        }
    }
}
