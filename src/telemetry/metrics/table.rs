//! Reads the labels and the help of each metric from its row in `table.md`.

use prometheus::{HistogramOpts, Opts};

/// The buckets of durations in seconds. The lowest bound is half a millisecond, a typical file write. The highest bound
/// is half a minute, the default timeout of a request.
const SECONDS: [f64; 15] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The buckets of the age of events in seconds, from a tenth of a second to a day.
const AGES: [f64; 15] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0];

/// The metrics that measure the age of events.
const AGED: [&str; 2] = ["channeld_delivered_event_age_seconds", "channeld_delivered_after_reading_seconds"];

/// Returns the result of an operation on a metric. The operation cannot fail, because the tests have tried all names,
/// labels and buckets.
pub(super) fn well_formed<T>(made: prometheus::Result<T>) -> T {
    made.expect("names, labels and buckets are constants that the tests have seen accepted")
}

/// The cells of a metric's row in the table: its name, type, labels and help.
fn row(name: &str) -> [&'static str; 4] {
    let mut rows = include_str!("table.md").lines().filter_map(|row| {
        let mut cells = row.strip_prefix("| ")?.strip_suffix(" |")?.split('|').map(str::trim);
        Some([cells.next()?.trim_matches('`'), cells.next()?, cells.next()?, cells.next()?])
    });
    rows.find(|row| row[0] == name).expect("the tests compare the table with a scrape")
}

pub(super) fn described(name: &str) -> Opts {
    Opts::new(name, row(name)[3])
}

pub(super) fn labels(name: &str) -> Vec<&'static str> {
    row(name)[2].split(", ").filter(|label| !label.is_empty()).collect()
}

pub(super) fn buckets(name: &str) -> HistogramOpts {
    let buckets = if AGED.contains(&name) { AGES } else { SECONDS };
    HistogramOpts::from(described(name)).buckets(buckets.to_vec())
}
