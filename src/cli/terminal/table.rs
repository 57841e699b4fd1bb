//! A table for a terminal. Columns are as wide as their cells. Without a terminal, the colors are dropped.

use std::fmt;

use anstyle::Style;

use crate::cli::terminal::styled;

/// A text and its style.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
    to_the_right: bool,
}

impl Cell {
    pub(crate) fn new(style: Style, text: impl Into<String>) -> Self {
        Self { text: text.into(), style, to_the_right: false }
    }

    /// A plain text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::new(Style::new(), text)
    }

    /// A right-aligned quantity, `-` for `None`.
    pub(crate) fn quantity(quantity: Option<impl fmt::Display>) -> Self {
        let text = quantity.map_or_else(|| "-".to_owned(), |quantity| quantity.to_string());
        Self { to_the_right: true, ..Self::text(text) }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }

    fn padded(&self, width: usize) -> String {
        let (blank, text) = (" ".repeat(width.saturating_sub(self.width())), styled(self.style, &self.text));
        if self.to_the_right { blank + &text } else { text + &blank }
    }
}

/// Rows of cells, the heading first. Each row ends with a text outside the columns, which may have any width.
#[derive(Debug)]
pub(crate) struct Table(pub(crate) Vec<(Vec<Cell>, String)>);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths = Vec::new();
        for (row, _) in &self.0 {
            widths.resize(widths.len().max(row.len()), 0);
            row.iter().zip(&mut widths).for_each(|(cell, width)| *width = cell.width().max(*width));
        }
        for (row, end) in &self.0 {
            let cells = row.iter().zip(&widths).map(|(cell, width)| cell.padded(*width));
            let line: Vec<_> = cells.chain([end.clone()]).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::BAD;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them_and_colours_take_no_room() {
        let table = Table(vec![
            (vec![Cell::text("NAME"), Cell::quantity(Some("N"))], String::new()),
            (vec![Cell::new(BAD, "a-long-name"), Cell::quantity(Some(12_345))], "why".to_owned()),
            (vec![Cell::text("b"), Cell::quantity(None::<u8>)], String::new()),
            (vec![Cell::text("c")], "what is said of it".to_owned()),
        ]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(
            plain,
            "NAME             N\na-long-name  12345  why\nb                -\nc            what is said of it\n"
        );
        assert!(table.to_string().contains("\u{1b}[31ma-long-name\u{1b}[0m"));
    }
}
