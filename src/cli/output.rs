//! Writes the results of commands: lines for people, JSON for programs.

use std::fmt;
use std::io;

use serde::Serialize;

use super::exit::{Exit, Failure};

/// Writes each item as one line, either as JSON or as formatted by `line`.
pub(super) fn write_each<T: Serialize>(
    out: &mut impl io::Write,
    json: bool,
    each: &[T],
    line: impl Fn(&T) -> String,
) -> Result<Exit, Failure> {
    write_lines(out, each.iter().map(|one| if json { to_json(one) } else { line(one) }))
}

/// Writes a list. With `json`, one JSON line per item. Otherwise `heading` and one line per item, or `none` if it is empty.
pub(super) fn write_list<T: Serialize>(
    out: &mut impl io::Write,
    json: bool,
    each: &[T],
    (heading, none): (&str, &str),
    line: impl Fn(&T) -> String,
) -> Result<Exit, Failure> {
    if !json {
        say(out, if each.is_empty() { none } else { heading })?;
    }
    write_each(out, json, each, line)
}

/// Writes one line of JSON.
pub(super) fn say_json<T: Serialize>(out: &mut impl io::Write, one: &T) -> Result<Exit, Failure> {
    say(out, to_json(one))
}

/// Writes one line.
pub(super) fn say(out: &mut impl io::Write, line: impl fmt::Display) -> Result<Exit, Failure> {
    write_lines(out, [line])
}

/// Writes lines and flushes the output.
pub(super) fn write_lines(
    out: &mut impl io::Write,
    lines: impl IntoIterator<Item = impl fmt::Display>,
) -> Result<Exit, Failure> {
    let mut lines = lines.into_iter();
    lines.try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()).map_err(Failure::output)?;
    Ok(Exit::Done)
}

fn to_json<T: Serialize>(one: &T) -> String {
    serde_json::to_string(one).expect("an answer is JSON")
}
