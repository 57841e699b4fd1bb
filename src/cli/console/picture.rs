//! Small pictures of a quantity over the last hour.

use std::fmt::Write;

use jiff::Timestamp;
use maud::{Markup, html};

use super::history::Series;

/// An hour, in seconds.
const HOUR: f64 = 3_600.0;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 44.0;

/// The line of a quantity, with its last and its highest value in words. Where nothing was seen there is no line.
pub(super) fn line(title: &str, series: &Series, now: Timestamp, shown: impl Fn(f64) -> String) -> Markup {
    let values = || series.iter().filter_map(|(_, value)| *value);
    let highest = values().fold(0.0, f64::max);
    let last = series.iter().rev().find_map(|(_, value)| *value);
    let said = match last {
        None => format!("{title}: not seen in the last hour"),
        Some(last) => format!("{title}: now {}, at most {} in the last hour", shown(last), shown(highest)),
    };
    html! {
        figure.spark {
            figcaption {
                span.what { (title) }
                strong { (last.map_or_else(|| "–".to_owned(), &shown)) }
            }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img" aria-label=(said) {
                path.base d=(format!("M0 {} H{WIDTH}", HEIGHT - 0.5)) {}
                @for run in runs(series, now, highest) {
                    path.area d=(format!("{run} V{HEIGHT} H{} Z", start(&run))) {}
                    path.trend d=(run) {}
                }
            }
            span.most { @if last.is_some() { "at most " (shown(highest)) } @else { "nothing seen yet" } }
        }
    }
}

/// The x that a path begins at.
fn start(path: &str) -> &str {
    path.strip_prefix('M').and_then(|rest| rest.split(' ').next()).unwrap_or("0")
}

/// A path for each stretch without a gap.
fn runs(series: &Series, now: Timestamp, highest: f64) -> Vec<String> {
    let mut runs: Vec<String> = Vec::new();
    let mut goes_on = false;
    for (at, value) in series {
        let age = now.duration_since(*at).as_secs_f64();
        let Some(value) = value.filter(|_| age <= HOUR) else {
            goes_on = false;
            continue;
        };
        let x = WIDTH * (1.0 - age / HOUR);
        let y = if highest > 0.0 { (HEIGHT - 1.0) - (HEIGHT - 5.0) * value / highest } else { HEIGHT - 1.0 };
        match runs.last_mut().filter(|_| goes_on) {
            Some(run) => drop(write!(run, " L{x:.1} {y:.1}")),
            None => runs.push(format!("M{x:.1} {y:.1}")),
        }
        goes_on = true;
    }
    // A point alone would not show.
    runs.iter_mut().filter(|run| !run.contains('L')).for_each(|run| run.push_str(" h1.5"));
    runs
}
