//! `channeld check --effective`: prints each effective setting and its origin. If the output is not a terminal, each setting
//! is one line, for programs such as `grep`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::cli::terminal::{ASIDE, QUIET, styled, width_of, wrapped};
use crate::cli::verdict_line::printable;
use crate::config::{Origin, Setting};

/// The origins begin at most at this column. The origin of a wider setting follows the setting directly.
const COLUMN: usize = 64;

const INDENT: &str = "    ";

/// The settings, formatted for a terminal with `width` columns. Without a width, they are formatted for a program.
pub(super) struct Effective<'a> {
    pub(super) settings: &'a [Setting],
    file: Option<&'a Path>,
    width: Option<usize>,
}

impl<'a> Effective<'a> {
    pub(super) fn of(settings: &'a [Setting], file: Option<&'a Path>) -> Self {
        Self { settings, file, width: width_of(&io::stdout()) }
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let room = self.width.unwrap_or(usize::MAX);
        let file = self.file.map_or("no file was read".to_owned(), |file| format!("the file is {}", file.display()));
        let about = format!(
            "Each effective setting and its origin: a line of the file, an environment variable, or the default; {file}."
        );
        for line in wrapped(&printable(&about), room.saturating_sub(2)) {
            writeln!(out, "{}", styled(QUIET, &format!("# {line}")))?;
        }
        for table in self.settings.chunk_by(|one, next| table_of(&one.key) == table_of(&next.key)) {
            writeln!(out)?;
            let column = column(table, room);
            table.iter().try_for_each(|setting| write_one(out, setting, column, room))?;
        }
        Ok(())
    }
}

/// The width of the widest setting that leaves room for its origin.
fn column(table: &[Setting], room: usize) -> usize {
    let width = |setting: &Setting| {
        let width = assigned(setting).width();
        Some(width).filter(|width| *width <= COLUMN && width + 2 + comment(setting).width() <= room)
    };
    table.iter().filter_map(width).max().unwrap_or(0)
}

fn write_one(out: &mut impl Write, setting: &Setting, column: usize, room: usize) -> io::Result<()> {
    let (assigned, comment) = (assigned(setting), comment(setting));
    let style = if setting.origin == Origin::Default { QUIET } else { ASIDE };
    let said = styled(style, &comment);
    let (width, needed) = (assigned.width(), 2 + comment.width());
    if width <= column && column + needed <= room {
        return writeln!(out, "{assigned}{}  {said}", " ".repeat(column - width));
    }
    if width + needed <= room {
        return writeln!(out, "{assigned}  {said}");
    }
    let (Some(Value::Array(items)), None) = (&setting.value, &setting.inherits) else {
        return writeln!(out, "{assigned}\n{INDENT}{said}");
    };
    writeln!(out, "{} = [  {said}", setting.key)?;
    items.iter().try_for_each(|item| writeln!(out, "{INDENT}{},", printable(&toml(item))))?;
    writeln!(out, "]")
}

/// The name of the group of a setting. It is the setting's table or, below `channels` and `sinks`, the table of one channel
/// or one sink.
fn table_of(key: &str) -> &str {
    let dots: Vec<_> = key.match_indices('.').map(|(at, _)| at).collect();
    let levels = if key.starts_with("channels.") || key.starts_with("sinks.") { 2 } else { 1 };
    // A key that is in no table is a group of its own.
    dots.get(levels - 1).map_or(key, |end| &key[..*end])
}

/// The setting in TOML syntax, on one line.
fn assigned(Setting { key, value, inherits, .. }: &Setting) -> String {
    let shown = match (value, inherits) {
        (None, _) => "hidden".to_owned(),
        // The list is printed in full in the table from which it is inherited.
        (Some(Value::Array(_)), Some(_)) => "[…]".to_owned(),
        (Some(value), _) => toml(value),
    };
    printable(&format!("{key} = {shown}"))
}

/// A comment that says where the setting was set.
fn comment(Setting { origin, inherits, .. }: &Setting) -> String {
    let place = match origin {
        Origin::Default => "default".to_owned(),
        Origin::File { file, line } => {
            let name = file.file_name().unwrap_or(file.as_os_str()).display();
            line.map_or(name.to_string(), |line| format!("{name}, line {line}"))
        }
        Origin::Discovered => "discovered".to_owned(),
        Origin::Environment { variable } => variable.clone(),
    };
    printable(&match inherits {
        // The key has the same name in the other table, so only the table is named.
        Some(other) => format!("# [{}]: {place}", other.rsplit_once('.').map_or("", |(table, _)| table)),
        None => format!("# {place}"),
    })
}

fn toml(value: &Value) -> String {
    match value {
        Value::String(text) => toml_edit::Value::from(text).to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
