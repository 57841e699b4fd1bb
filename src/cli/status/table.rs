//! A table for a terminal, with columns as wide as their cells and colours that are dropped where there is no terminal.

use std::fmt;

use anstyle::{AnsiColor, Style};

/// Between two columns.
const GAP: &str = "  ";

/// As it should be.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();

/// Not as it should be, and heals by itself.
pub(super) const PASSING: Style = AnsiColor::Yellow.on_default();

/// An operator must act.
pub(super) const BAD: Style = AnsiColor::Red.on_default();

/// An operator has asked for it.
pub(super) const ASIDE: Style = AnsiColor::Cyan.on_default();

/// A text and how it looks.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
    to_the_right: bool,
}

impl Cell {
    pub(super) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style, to_the_right: false }
    }

    /// A plain text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::new(Style::new(), text)
    }

    /// A quantity: to the right of its column, `-` where there is none.
    pub(super) fn quantity(quantity: Option<impl fmt::Display>) -> Self {
        let text = quantity.map_or_else(|| "-".to_owned(), |quantity| quantity.to_string());
        Self { text, style: Style::new(), to_the_right: true }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let style = self.style;
        let blank = width.saturating_sub(self.text.chars().count());
        let (before, after) = if self.to_the_right { (blank, 0) } else { (0, blank) };
        write!(f, "{:before$}{style}{}{style:#}{:after$}", "", self.text, "")
    }
}

/// A text for a line that is in no table.
pub(super) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Rows below a heading. What a row has beyond the heading's columns stands at its end, however wide.
#[derive(Debug)]
pub(super) struct Table {
    heading: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn new(heading: Vec<Cell>) -> Self {
        Self { heading, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = || std::iter::once(&self.heading).chain(&self.rows);
        // What ends a row pushes nothing aside.
        let counts =
            |row: &[Cell], column: usize| column < last(row) || row.get(column).is_some_and(|cell| cell.to_the_right);
        let width = |column: usize| {
            let cells = rows().filter(|row| counts(row, column)).filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.heading.len()).map(width).collect();
        for row in rows() {
            for (column, cell) in row.iter().enumerate().take(last(row) + 1) {
                f.write_str(if column == 0 { "" } else { GAP })?;
                let width = if counts(row, column) { widths.get(column).copied() } else { None };
                cell.write(f, width.unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// The last cell of a row in which anything stands.
fn last(row: &[Cell]) -> usize {
    row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
