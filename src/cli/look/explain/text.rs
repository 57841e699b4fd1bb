//! Converts the Markdown of the runbook to plain text for a terminal: paragraphs, lists, code blocks, tables and links.

use super::runbook::{sections, slug};

/// The indentation of a code block.
const CODE: &str = "    ";

/// The plain text that is being built.
#[derive(Default)]
struct Plain<'a> {
    lines: Vec<String>,
    /// A paragraph or a list item: the prefix of its first line, the prefix of the other lines, and its text.
    paragraph: Option<(String, String, String)>,
    /// The rows of a table, each with its indentation.
    table: Vec<(usize, Vec<&'a str>)>,
    is_code: bool,
}

/// Converts Markdown to plain text. No line is longer than `width`, except in code blocks.
pub(super) fn plain(markdown: &str, width: usize) -> String {
    let mut plain = Plain::default();
    for line in markdown.lines() {
        plain.add(line, width);
    }
    plain.end_block(width);
    plain.lines.join("\n").trim().to_owned()
}

impl<'a> Plain<'a> {
    fn add(&mut self, line: &'a str, width: usize) {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if trimmed.starts_with("```") {
            self.end_block(width);
            self.is_code = !self.is_code;
        } else if self.is_code {
            self.lines.push(format!("{CODE}{}", line.trim_end()).trim_end().to_owned());
        } else if trimmed.is_empty() {
            self.end_block(width);
            if self.lines.last().is_some_and(|line| !line.is_empty()) {
                self.lines.push(String::new());
            }
        } else if trimmed.starts_with('|') {
            if self.table.is_empty() {
                self.end_block(width);
            }
            self.table.push((indent, cells(trimmed)));
        } else if let Some(marker) = marker(trimmed) {
            self.end_block(width);
            let (before, text) = (" ".repeat(indent), &trimmed[marker..]);
            let further = format!("{before}{}", " ".repeat(marker));
            self.paragraph = Some((format!("{before}{}", &trimmed[..marker]), further, text.to_owned()));
        } else if let Some((_, _, text)) = &mut self.paragraph {
            *text = format!("{text} {trimmed}");
        } else {
            self.end_block(width);
            let before = " ".repeat(indent);
            self.paragraph = Some((before.clone(), before, trimmed.to_owned()));
        }
    }

    fn end_block(&mut self, width: usize) {
        if let Some((first, further, text)) = self.paragraph.take() {
            self.lines.push(wrapped(&inline(&text), &first, &further, width));
        }
        let table = std::mem::take(&mut self.table);
        let Some(((_, headings), rows)) = table.split_first() else { return };
        // The first line after the headings is the separator.
        for (indent, cells) in rows.iter().skip(1) {
            let (before, further) = (" ".repeat(*indent), " ".repeat(indent + 4));
            self.lines.push(wrapped(&inline(cells[0]), &before, &before, width));
            for (heading, cell) in headings.iter().zip(cells).skip(1) {
                let told =
                    if cells.len() == 2 { inline(cell) } else { format!("{}: {}", inline(heading), inline(cell)) };
                self.lines.push(wrapped(&told, &further, &further, width));
            }
        }
    }
}

/// The length of the marker of a list item, such as `* ` or `1. `.
fn marker(line: &str) -> Option<usize> {
    let number = line.bytes().take_while(u8::is_ascii_digit).count();
    let is_numbered = number > 0 && line[number..].starts_with(". ");
    if line.starts_with("* ") { Some(2) } else { is_numbered.then_some(number + 2) }
}

/// The cells of a row.
pub(super) fn cells(row: &str) -> Vec<&str> {
    row.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// The texts between backticks.
pub(super) fn code_spans(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A text without Markdown marks. If the label of a link is not its heading, the heading follows in parentheses.
pub(super) fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (before, label) = before.rsplit_once('[').unwrap_or((before, ""));
        let (target, after) = after.split_once(')').unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(label);
        let heading = target.strip_prefix('#').and_then(|anchor| sections().find(|(it, _)| slug(it) == anchor));
        if let Some((heading, _)) = heading.filter(|(heading, _)| !heading.eq_ignore_ascii_case(label)) {
            out.push_str(" (");
            out.push_str(heading);
            out.push(')');
        }
        rest = after;
    }
    out.push_str(rest);
    let parts = out.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 0 { part.replace("**", "") } else { part.to_owned() }).collect()
}

/// The anchors of the runbook's sections that a text links to.
pub(super) fn anchors(text: &str) -> Vec<&str> {
    text.split("](#").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// The first sentence, without the final period or colon.
pub(super) fn first_sentence(markdown: &str) -> String {
    let first = markdown.trim_start().split("\n\n").next().unwrap_or_default();
    let first = inline(&first.lines().map(str::trim).collect::<Vec<_>>().join(" "));
    first.split_once(". ").map_or(first.as_str(), |(sentence, _)| sentence).trim_end_matches(['.', ':']).to_owned()
}

/// Wraps a text between words. `first` is the prefix of the first line, `further` the prefix of the others.
pub(super) fn wrapped(text: &str, first: &str, further: &str, width: usize) -> String {
    let (mut lines, mut line, mut is_bare) = (Vec::new(), first.to_owned(), true);
    for word in text.split_whitespace() {
        let longer = line.chars().count() + usize::from(!is_bare) + word.chars().count();
        if longer > width && !is_bare {
            lines.push(std::mem::replace(&mut line, further.to_owned()));
            is_bare = true;
        }
        if !is_bare {
            line.push(' ');
        }
        line.push_str(word);
        is_bare = false;
    }
    lines.push(line);
    lines.join("\n")
}

/// Shortens a text to `width` characters, between words.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let start: String = text.chars().take(width - 2).collect();
    let end = start.rfind(' ').unwrap_or(start.len());
    format!("{} …", start[..end].trim_end_matches([',', ';', ':', ' ']))
}
