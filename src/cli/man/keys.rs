//! channeld.toml(5), from `config/default.toml`: its comments become text, its keys become terms.

use std::io;

use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::{MANUAL, date, see_also, source};
use crate::config::DEFAULTS;

/// The paragraphs at the head of the file that are of the file alone.
const ABOUT_THE_FILE: usize = 2;

/// A line of the file, by what it is.
enum Line<'a> {
    /// Between paragraphs.
    Empty,
    /// What explains the keys, or the table, that follow.
    Text(&'a str),
    /// The head of a table.
    Table(&'a str),
    /// A key with its value.
    Key(Key<'a>),
    /// A value that goes on, or its end.
    More(&'a str),
}

/// A key, and what its value is: the text to show.
struct Key<'a> {
    name: &'a str,
    value: Inline,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Self {
        if let Some(text) = line.strip_prefix("# ") {
            return Self::Text(text);
        }
        // A comment without a space is a key without a default.
        let (shown, line): (fn(&str) -> Inline, _) = match line.strip_prefix('#') {
            Some(line) => (|example| italic(example), line),
            None => (|default| roman(default), line),
        };
        match (line.trim(), line.split_once(" = ")) {
            ("", _) => Self::Empty,
            (_, Some((name, value))) => Self::Key(Key { name, value: shown(value) }),
            (more, None) if more.starts_with('[') => Self::Table(more),
            (more, None) => Self::More(more),
        }
    }
}

/// What of the file has not found its place yet.
#[derive(Default)]
struct Pending<'a> {
    text: Vec<&'a str>,
    keys: Vec<Key<'a>>,
    more: Vec<&'a str>,
}

pub(super) fn page() -> io::Result<Vec<u8>> {
    let mut roff = Roff::new();
    roff.control("TH", ["channeld.toml", "5", &date(), &source(), MANUAL]);
    roff.control("SH", ["NAME"]).text([roman("channeld.toml - configuration of channeld")]);
    roff.control("SH", ["DESCRIPTION"]).text([
        roman("A TOML file. Every key stands here with its default or, "),
        italic("in this type"),
        roman(", with an example. NAME stands for a name of your choice."),
    ]);
    body(&mut roff);
    let mut text = Vec::new();
    roff.to_writer(&mut text)?;
    see_also("channeld(1), channeld-check(1)").to_writer(&mut text)?;
    Ok(text)
}

fn body(roff: &mut Roff) {
    let mut pending = Pending::default();
    let paragraphs = DEFAULTS.splitn(ABOUT_THE_FILE + 1, "\n#\n").last().unwrap_or_default();
    for line in paragraphs.lines() {
        match Line::of(line) {
            Line::Empty => pending.put(roff),
            Line::Text(text) => {
                if !pending.keys.is_empty() {
                    pending.put(roff);
                }
                pending.text.push(text);
            }
            Line::Table(name) => {
                let about = std::mem::take(&mut pending.text).join("\n");
                pending.put(roff);
                roff.control("SH", [name]);
                if !about.is_empty() {
                    roff.text(marked(&about));
                }
            }
            Line::Key(key) => pending.keys.push(key),
            Line::More(more) => pending.more.push(more),
        }
    }
    pending.put(roff);
}

impl Pending<'_> {
    /// Puts a paragraph, or keys with what explains them.
    fn put(&mut self, roff: &mut Roff) {
        let Self { text, keys, more } = std::mem::take(self);
        if keys.is_empty() && !text.is_empty() {
            roff.control("PP", []);
        }
        let last = keys.len().checked_sub(1);
        for (number, Key { name, value }) in keys.into_iter().enumerate() {
            roff.control(if number == 0 { "TP" } else { "TQ" }, []);
            let goes_on = !more.is_empty() && Some(number) == last;
            roff.text(if goes_on { vec![bold(name)] } else { vec![bold(name), roman(" = "), value] });
        }
        if !text.is_empty() {
            roff.text(marked(&text.join("\n")));
        }
        if !more.is_empty() {
            roff.control("RS", []).control("PP", []).control("nf", []);
            for line in more.into_iter().filter(|line| *line != "]") {
                roff.text([roman(line)]);
            }
            roff.control("fi", []).control("RE", []);
        }
    }
}

/// What stands between backticks is bold.
fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests;
