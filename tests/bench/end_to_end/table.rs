//! Tables for the terminal.

use std::time::Duration;

/// The values of a repeated measurement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The quantile for this share of the samples.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
        let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len()) - 1;
        sorted[place]
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum() / self.len() as f64
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// Combines the samples of the same runs.
    pub(crate) fn zip(&self, other: &Self, with: impl Fn(f64, f64) -> f64) -> Self {
        self.0.iter().zip(&other.0).map(|(&one, &other)| with(one, other)).collect()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Table {
    /// Prints the title and creates a table with these column heads.
    pub(crate) fn new(title: &str, heads: &[&str]) -> Self {
        println!("\n{title}\n");
        let mut table = Self { rows: Vec::new() };
        table.add(heads);
        table
    }

    pub(crate) fn of_runs(title: &str) -> Self {
        Self::new(title, &["", "median", "least to most", "should be"])
    }

    pub(crate) fn of_figures(title: &str) -> Self {
        Self::new(title, &["", "", "should be"])
    }

    pub(crate) fn add(&mut self, texts: &[&str]) {
        self.rows.push(texts.iter().map(|text| (*text).to_owned()).collect());
    }

    /// Adds a row for a repeated measurement. `wanted` is the expected value, or empty.
    pub(crate) fn runs(&mut self, what: &str, samples: &Samples, wanted: &str) {
        let spread = format!("{} to {}", figure(samples.at(0.0)), figure(samples.at(1.0)));
        self.add(&[what, &figure(samples.median()), &spread, wanted]);
    }

    pub(crate) fn figure(&mut self, what: &str, value: f64, wanted: &str) {
        self.add(&[what, &figure(value), wanted]);
    }

    /// Prints the table. The first and the last column are aligned to the left, and the others to the right.
    pub(crate) fn print(&self) {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<_> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (text, &width))| {
                if column == 0 || column + 1 == columns { format!("{text:width$}") } else { format!("{text:>width$}") }
            });
            println!("  {}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
}

/// A number with three significant digits, or without decimals, and with separators for thousands.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => thousands(&format!("{value:.0}")),
    }
}

fn thousands(digits: &str) -> String {
    let mut apart = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(crate) fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
