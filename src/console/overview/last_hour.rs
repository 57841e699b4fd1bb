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

/// Draws the quantities over the hour before `now`, which is a time in Unix seconds. If the samples do not cover the
/// whole hour, the text states the time of the first sample.
pub(super) fn charts(samples: &[Sample], now: i64) -> Markup {
    let since = samples.first().map_or(now, |first| first.at);
    let is_whole = since <= now - HOUR + WHOLE;
    html! {
        div.sparks {
            (chart("Lag, events", LAG, |value| format!("{value:.0}"), samples, now))
            (chart("Delivered per second", RATE, |value| format!("{value:.1}"), samples, now))
            (chart("Delivery latency", LATENCY, seconds, samples, now))
        }
        p.sub.since {
            @if is_whole { "The last hour." }
            @else { "The last hour. Recorded since " (time(Timestamp::from_second(since).ok())) " UTC." }
        }
    }
}

/// Draws the line of one quantity, with its last and its highest value in words. Without samples, no line is drawn.
fn chart(title: &str, of: Quantity, shown: fn(f64) -> String, samples: &[Sample], now: i64) -> Markup {
    let values = || samples.iter().filter_map(of);
    let (highest, last) = (values().fold(0.0, f64::max), values().next_back());
    let said = match last {
        None => format!("{title}: no data for the last hour"),
        Some(last) => format!("{title}: now {}, maximum {} in the last hour", shown(last), shown(highest)),
    };
    let begins = x(samples.first().map_or(now, |first| first.at), now);
    html! {
        figure.spark {
            figcaption {
                span.what { (title) }
                strong { (last.map_or_else(|| "–".to_owned(), shown)) }
            }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(said) {
                path.base.unknown d=(format!("M0 {0} H{begins:.1}", HEIGHT - 0.5)) {}
                path.base d=(format!("M{begins:.1} {} H{WIDTH}", HEIGHT - 0.5)) {}
                @for run in runs(samples, of, now, highest) {
                    path.area d=(format!("{run} V{HEIGHT} H{} Z", start(&run))) {}
                    path.trend d=(run) {}
                }
            }
            span.most { @if last.is_some() { "max. " (shown(highest)) } @else { "no data yet" } }
        }
    }
}

/// The x coordinate of a time.
fn x(at: i64, now: i64) -> f64 {
    let age = u32::try_from((now - at).clamp(0, HOUR)).unwrap_or(0);
    let hour = u32::try_from(HOUR).unwrap_or(u32::MAX);
    WIDTH * (1.0 - f64::from(age) / f64::from(hour))
}

/// The x coordinate at which a path begins.
fn start(path: &str) -> &str {
    path.strip_prefix('M').and_then(|rest| rest.split(' ').next()).unwrap_or("0")
}

/// One path for each run of samples without a gap.
fn runs(samples: &[Sample], of: Quantity, now: i64, highest: f64) -> Vec<String> {
    let mut runs: Vec<String> = Vec::new();
    let mut before: Option<i64> = None;
    for sample in samples {
        let Some(value) = of(sample).filter(|_| now - sample.at <= HOUR) else {
            before = None;
            continue;
        };
        let x = x(sample.at, now);
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
        let runs = runs(&samples, LAG, NOW, 4.0);
        assert_eq!(runs, ["M40.0 4.0 L44.0 23.5", "M232.0 43.0 L236.0 4.0 L240.0 33.2"]);
    }

    #[test]
    fn an_incomplete_hour_says_when_it_begins() {
        let young = charts(&[sample(600, 4), sample(0, 1)], NOW).into_string();
        assert!(young.contains("2027-01-15 07:50:00") && young.contains("maximum 4 in the last hour"), "{young}");
        assert!(young.contains("H200.0"), "the time before the first sample is drawn as unknown: {young}");
        let whole = charts(&[sample(3_560, 4), sample(0, 1)], NOW).into_string();
        assert!(whole.contains("The last hour.") && !whole.contains("Recorded since"), "{whole}");
        assert!(charts(&[], NOW).into_string().contains("no data for the last hour"));
    }
}
