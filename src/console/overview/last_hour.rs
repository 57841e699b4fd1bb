//! Draws small charts of a channel's last hour.

use std::fmt::Write;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::page::time;
use channel::{GAP, HOUR, Sample};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 44.0;

/// An hour counts as complete if its first sample is at most this many seconds late.
const WHOLE: i64 = 120;

/// Reads the quantity that a chart shows from a sample.
type Quantity = fn(&Sample) -> Option<f64>;

const LAG: Quantity = |sample| sample.lag_events.map(f64::from);
const RATE: Quantity = |sample| sample.events_per_second.map(f64::from);
const LATENCY: Quantity = |sample| sample.delivery_seconds.map(f64::from);

fn seconds(value: f64) -> String {
    if value < 1.0 { format!("{:.0} ms", value * 1_000.0) } else { format!("{value:.1} s") }
}

/// The fewest samples that are drawn.
const FEWEST: usize = 3;

/// Draws the quantities over the hour before `now`, which is a time in Unix seconds. If the samples do not cover the
/// whole hour, the charts begin at the first sample, and the text states its time.
pub(super) fn charts(samples: &[Sample], now: i64) -> Markup {
    let since = samples.first().map_or(now, |first| first.at);
    let is_whole = since <= now - HOUR + WHOLE;
    let range = ChartRange { begins: since.max(now - HOUR), now };
    html! {
        div.sparks {
            (chart("Lag, events", LAG, |value| format!("{value:.0}"), samples, range))
            (chart("Delivered per second", RATE, |value| format!("{value:.1}"), samples, range))
            (chart("Delivery latency", LATENCY, seconds, samples, range))
        }
        p.sub.since {
            @if is_whole { "The last hour." }
            @else if !samples.is_empty() { "Recorded since " (time(Timestamp::from_second(since).ok())) " UTC." }
        }
    }
}

/// The time that a chart shows, in Unix seconds.
#[derive(Clone, Copy)]
struct ChartRange {
    begins: i64,
    now: i64,
}

impl ChartRange {
    /// The x coordinate of a time.
    fn x(self, at: i64) -> f64 {
        let seconds = |from: i64, to: i64| f64::from(u32::try_from((to - from).clamp(0, HOUR)).unwrap_or(0));
        WIDTH * seconds(self.begins, at) / seconds(self.begins, self.now).max(1.0)
    }
}

/// Draws the line of one quantity, with its last and its highest value in words. With few samples, no line is drawn.
fn chart(title: &str, of: Quantity, shown: fn(f64) -> String, samples: &[Sample], range: ChartRange) -> Markup {
    let values = || samples.iter().filter_map(of);
    let (highest, last) = (values().fold(0.0, f64::max), values().next_back());
    let said = match last {
        None => format!("{title}: no data for the last hour"),
        Some(last) => format!("{title}: now {}, maximum {} in the last hour", shown(last), shown(highest)),
    };
    html! {
        figure.spark {
            figcaption {
                span.what { (title) }
                strong { (last.map_or_else(|| "–".to_owned(), shown)) }
            }
            @if samples.len() < FEWEST {
                p.collecting { "collecting, " ((range.now - range.begins) / 60 + 1) " of " (HOUR / 60) " minutes" }
            } @else {
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(said) {
                    path.base d=(format!("M0 {} H{WIDTH}", HEIGHT - 0.5)) {}
                    @for run in runs(samples, of, range, highest) {
                        path.area d=(format!("{run} V{HEIGHT} H{} Z", start(&run))) {}
                        path.trend d=(run) {}
                    }
                }
                span.most { @if last.is_some() { "max. " (shown(highest)) } @else { "no data yet" } }
            }
        }
    }
}

/// The x coordinate at which a path begins.
fn start(path: &str) -> &str {
    path.strip_prefix('M').and_then(|rest| rest.split(' ').next()).unwrap_or("0")
}

/// One path for each run of samples without a gap.
fn runs(samples: &[Sample], of: Quantity, range: ChartRange, highest: f64) -> Vec<String> {
    let mut runs: Vec<String> = Vec::new();
    let mut before: Option<i64> = None;
    for sample in samples {
        let Some(value) = of(sample).filter(|_| sample.at >= range.begins) else {
            before = None;
            continue;
        };
        let x = range.x(sample.at);
        let y = if highest > 0.0 { (HEIGHT - 1.0) - (HEIGHT - 5.0) * value / highest } else { HEIGHT - 1.0 };
        match runs.last_mut().filter(|_| before.is_some_and(|before| sample.at - before <= GAP)) {
            Some(run) => drop(write!(run, " L{x:.1} {y:.1}")),
            None => runs.push(format!("M{x:.1} {y:.1}")),
        }
        before = Some(sample.at);
    }
    // A single point would be invisible.
    runs.iter_mut().filter(|run| !run.contains('L')).for_each(|run| run.push_str(" h1.5"));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn sample(age: i64, lag: u32) -> Sample {
        Sample { at: NOW - age, lag_events: Some(lag), events_per_second: None, delivery_seconds: None }
    }

    #[test]
    fn a_chart_has_a_gap_without_samples() {
        let samples = [sample(3_000, 4), sample(2_940, 2), sample(120, 0), sample(60, 4), sample(0, 1)];
        let runs = runs(&samples, LAG, ChartRange { begins: NOW - HOUR, now: NOW }, 4.0);
        assert_eq!(runs, ["M40.0 4.0 L44.0 23.5", "M232.0 43.0 L236.0 4.0 L240.0 33.2"]);
    }

    #[test]
    fn an_incomplete_hour_fills_the_chart_and_says_when_it_begins() {
        let young =
            charts(&[sample(600, 4), sample(540, 2), sample(480, 2), sample(60, 1), sample(0, 1)], NOW).into_string();
        assert!(young.contains("2027-01-15 07:50:00") && young.contains("maximum 4 in the last hour"), "{young}");
        assert!(young.contains("d=\"M0.0 4.0 L24.0 23.5"), "the first sample is at the left edge: {young}");
        let whole = charts(&[sample(3_560, 4), sample(60, 1), sample(0, 1)], NOW).into_string();
        assert!(whole.contains("The last hour.") && !whole.contains("Recorded since"), "{whole}");
    }

    #[test]
    fn few_samples_are_not_drawn() {
        let html = charts(&[sample(60, 4), sample(0, 1)], NOW).into_string();
        assert!(
            html.contains("collecting, 2 of 60 minutes")
                && !html.contains("<svg")
                && html.contains("<strong>1</strong>"),
            "{html}"
        );
        assert!(charts(&[], NOW).into_string().contains("collecting, 1 of 60 minutes"));
    }
}
