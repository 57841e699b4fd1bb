//! Figures as people read them.

use std::time::Duration;

/// What was measured several times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

/// A table: a row a figure.
pub(crate) struct Table {
    rows: Vec<[String; 4]>,
}

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value below which this share of the samples lies.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
        let place = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len()) - 1;
        sorted[place]
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    /// One by one.
    pub(crate) fn zip(&self, other: &Self, with: impl Fn(f64, f64) -> f64) -> Self {
        self.0.iter().zip(&other.0).map(|(&one, &other)| with(one, other)).collect()
    }

    /// Each of them, changed.
    pub(crate) fn map(&self, with: impl Fn(f64) -> f64) -> Self {
        self.0.iter().copied().map(with).collect()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Table {
    /// An empty one, under its title.
    pub(crate) fn new(title: &str) -> Self {
        println!("\n{title}\n");
        Self { rows: vec![["", "median", "least to most", "should be"].map(str::to_owned)] }
    }

    /// A figure, with what it should be where somebody has said.
    pub(crate) fn row(&mut self, what: &str, samples: &Samples, wanted: &str) {
        let spread = format!("{} to {}", figure(samples.at(0.0)), figure(samples.at(1.0)));
        self.rows.push([what.to_owned(), figure(samples.median()), spread, wanted.to_owned()]);
    }

    /// A figure that was measured once, or is known.
    pub(crate) fn single(&mut self, what: &str, value: f64, wanted: &str) {
        self.rows.push([what.to_owned(), figure(value), String::new(), wanted.to_owned()]);
    }

    pub(crate) fn print(&self) {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let [what, value, spread, _] = [0, 1, 2, 3].map(width);
        for row in &self.rows {
            let line = format!("  {:what$}  {:>value$}  {:>spread$}  {}", row[0], row[1], row[2], row[3]);
            println!("{}", line.trim_end());
        }
    }
}

/// A number with three digits that count, and thousands apart.
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

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
