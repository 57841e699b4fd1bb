//! Tables of text with colors. A table can be made as narrow as a terminal.

use std::fmt;

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::{shortened, styled, wrapped};

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    to_the_right: bool,
    is_whole: bool,
}

impl Cell {
    pub(crate) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style, to_the_right: false, is_whole: false }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(Style::new(), text)
    }

    /// A text that is never shortened, such as a name that people type.
    pub(crate) fn whole(text: impl Into<String>) -> Self {
        Self { is_whole: true, ..Self::text(text) }
    }

    /// A right-aligned quantity, `-` for `None`.
    pub(crate) fn quantity(quantity: Option<impl fmt::Display>) -> Self {
        let text = quantity.map_or_else(|| "-".to_owned(), |quantity| quantity.to_string());
        Self { to_the_right: true, ..Self::text(text) }
    }

    fn padded(&self, width: usize) -> String {
        let (blank, text) = (" ".repeat(width.saturating_sub(self.text.width())), styled(self.style, &self.text));
        if self.to_the_right { blank + &text } else { text + &blank }
    }
}

/// The space between two columns.
const GAP: usize = 2;

/// A narrow terminal shows at least this much of the text at the end of a line, if columns can be left out or shortened.
const END: usize = 24;

/// The indentation of a text that is wrapped below its row.
const INDENT: usize = 4;

/// A column of texts is not shortened below this width.
const SHORTEST: usize = 8;

/// Rows of cells, the heading first. A column is as wide as its widest cell. Each row ends with a text of any width.
#[derive(Debug)]
pub(crate) struct Table(pub(crate) Vec<(Vec<Cell>, String)>);

impl Table {
    /// Makes every line at most `width` columns wide, if possible: leaves out the columns with the headings `optional`, one after the
    /// other, then shortens the widest columns of texts, and then cuts the texts at the ends of the lines.
    pub(crate) fn fitted(mut self, width: usize, optional: &[&str]) -> Self {
        let end = self.0.iter().map(|(_, end)| end.width()).max().unwrap_or(0).min(END);
        let needed = |table: &Self| table.widths().iter().map(|width| width + GAP).sum::<usize>() + end;
        for heading in optional {
            let Some((headings, _)) = self.0.first().filter(|_| needed(&self) > width) else { break };
            if let Some(at) = headings.iter().position(|cell| cell.text == *heading) {
                self.0.iter_mut().filter(|(row, _)| row.len() > at).for_each(|(row, _)| drop(row.remove(at)));
            }
        }
        while needed(&self) > width && self.shorten_widest() {}
        let room = width.saturating_sub(self.widths().iter().map(|width| width + GAP).sum());
        for (_, end) in &mut self.0 {
            *end = shortened(end, room);
        }
        self
    }

    /// The table with lines of at most `width` columns, if possible. Columns are left out and shortened as by
    /// [`fitted`](Self::fitted). A text at the end of a row that does not fit there follows below the row, wrapped and complete.
    pub(crate) fn with_wrapped_ends(mut self, width: usize, optional: &[&str]) -> String {
        let ends: Vec<_> = self.0.iter_mut().map(|(_, end)| std::mem::take(end)).collect();
        let table = self.fitted(width, optional);
        let widths = table.widths();
        let mut lines = Vec::new();
        for ((row, _), end) in table.0.iter().zip(ends) {
            let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| cell.padded(*width)).collect();
            let used: usize = widths.iter().take(row.len()).map(|width| width + GAP).sum();
            let (line, fits) = (cells.join(&" ".repeat(GAP)), used.saturating_add(end.width()) <= width);
            let below = if fits || end.is_empty() { Vec::new() } else { wrapped(&end, width.saturating_sub(INDENT)) };
            let end = if fits { end } else { String::new() };
            lines.push(format!("{line}{}{end}", " ".repeat(GAP)).trim_end().to_owned());
            lines.extend(below.iter().map(|text| format!("{}{text}", " ".repeat(INDENT))));
        }
        lines.join("\n")
    }

    /// Makes the widest column of texts one column narrower. Returns `false` if every such column is short already.
    fn shorten_widest(&mut self) -> bool {
        let can_be_cut = |cell: &Cell| !cell.to_the_right && !cell.is_whole;
        let is_text = |at: usize| self.0.iter().all(|(row, _)| row.get(at).is_none_or(can_be_cut));
        let widths = self.widths().into_iter().enumerate();
        let widest = widths.filter(|(at, width)| is_text(*at) && *width > SHORTEST).max_by_key(|(_, width)| *width);
        let Some((at, width)) = widest else { return false };
        for cell in self.0.iter_mut().filter_map(|(row, _)| row.get_mut(at)) {
            cell.text = shortened(&cell.text, width - 1);
        }
        true
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for (row, _) in &self.0 {
            widths.resize(widths.len().max(row.len()), 0);
            row.iter().zip(&mut widths).for_each(|(cell, width)| *width = cell.text.width().max(*width));
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (row, end) in &self.0 {
            let cells = row.iter().zip(&widths).map(|(cell, width)| cell.padded(*width));
            let line: Vec<_> = cells.chain([end.clone()]).collect();
            writeln!(f, "{}", line.join(&" ".repeat(GAP)).trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::BAD;

    #[test]
    fn columns_fit_their_content_and_colors_take_no_room() {
        let table = Table(vec![
            (vec![Cell::text("NAME"), Cell::quantity(Some("N"))], String::new()),
            (vec![Cell::new(BAD, "a-long-name"), Cell::quantity(Some(12_345))], "why".to_owned()),
            (vec![Cell::text("b"), Cell::quantity(None::<u8>)], String::new()),
            (vec![Cell::text("c")], "a remark".to_owned()),
        ]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(plain, "NAME             N\na-long-name  12345  why\nb                -\nc            a remark\n");
        assert!(table.to_string().contains("\u{1b}[31ma-long-name\u{1b}[0m"));
    }

    #[test]
    fn a_text_that_does_not_fit_follows_below_its_row() {
        let table = || {
            let row = |name: &str, end: &str| {
                (vec![Cell::text(name), Cell::new(BAD, "bad"), Cell::quantity(Some(1))], end.to_owned())
            };
            Table(vec![row("NAME", "WHY"), row("a", "short"), row("b", "a reason of several words, which is long")])
        };
        let lines = |width| anstream::adapter::strip_str(&table().with_wrapped_ends(width, &[])).to_string();
        assert_eq!(
            lines(80),
            "NAME  bad  1  WHY\na     bad  1  short\nb     bad  1  a reason of several words, which is long"
        );
        let narrow =
            "NAME  bad  1  WHY\na     bad  1  short\nb     bad  1\n    a reason of several\n    words, which is long";
        assert_eq!(lines(24), narrow);
        assert_eq!(lines(usize::MAX), lines(80));
    }

    #[test]
    fn a_narrow_table_loses_optional_columns_and_then_the_ends_of_texts() {
        let table = || {
            let heading = ["CHANNEL", "AGE", "EVENT"].map(Cell::text).into();
            let row =
                [Cell::text("a-channel-with-a-long-name"), Cell::quantity(Some("3 h")), Cell::text("7c9e6679-7425")];
            Table(vec![
                (heading, "WHY".to_owned()),
                (row.into(), "the reason is a sentence with a few words".to_owned()),
            ])
        };
        let lines = |width| {
            let plain = anstream::adapter::strip_str(&table().fitted(width, &["EVENT", "AGE"]).to_string()).to_string();
            assert!(plain.lines().all(|line| line.width() <= width), "{plain}");
            plain.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let mut names = table();
        names.0[1].0[0] = Cell::whole("a-channel-with-a-long-name");
        assert!(names.fitted(40, &["EVENT", "AGE"]).to_string().contains("a-channel-with-a-long-name  "));
        assert!(lines(200)[1].ends_with("3 h  7c9e6679-7425  the reason is a sentence with a few words"));
        assert_eq!(lines(80)[1], "a-channel-with-a-long-name  3 h  7c9e6679-7425  the reason is a sentence with a…");
        assert_eq!(lines(60)[1], "a-channel-with-a-long-name  3 h  the reason is a sentence w…");
        assert_eq!(lines(40)[1], "a-channel-wit…  the reason is a sentenc…");
    }
}
