//! The rate and the lag of a channel in the last hour, as sparklines.

use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::page::LABEL;
use crate::cli::terminal::shortened;
use channel::{Sample, grouped, rate};

/// From the smallest value to the largest one. Only zero has the first bar.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A minute without a sample.
const MISSING: char = ' ';

/// One line for the rate and one for the lag, each with the present and the highest value. Empty without two samples, because a
/// single bar shows no trend.
pub(super) fn lines(samples: &[Sample], width: usize) -> Vec<Line<'static>> {
    if samples.len() < 2 {
        return Vec::new();
    }
    let rates: Vec<_> = samples.iter().map(|sample| sample.events_per_second.map(f64::from)).collect();
    let lags: Vec<_> = samples.iter().map(|sample| sample.lag_events.map(f64::from)).collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a whole number")]
    let whole = |lag: f64| grouped(lag as u64);
    vec![line("rate", &rates, rate, width), line("lag", &lags, whole, width)]
}

/// The text for the samples, such as `last 59 min`.
pub(super) fn period(samples: &[Sample]) -> Option<String> {
    let (first, last) = (samples.first()?, samples.last()?);
    let minutes = last.at.saturating_sub(first.at) / 60;
    Some(format!("last {} min", minutes.max(1)))
}

fn line(label: &str, values: &[Option<f64>], shown: impl Fn(f64) -> String, width: usize) -> Line<'static> {
    let now = values.last().copied().flatten().map_or_else(|| "not known".to_owned(), &shown);
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let text = format!("  {now} now, at most {}", shown(most));
    let label = format!("{label:<LABEL$}  ");
    let room = width.saturating_sub(label.width() + text.width());
    let bars = spark(&values[values.len().saturating_sub(room)..], most);
    let left = width.saturating_sub(label.width() + bars.width());
    Line::from(vec![Span::raw(shortened(&label, width)), bars.cyan(), Span::raw(shortened(&text, left))])
}

fn spark(values: &[Option<f64>], most: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the number of bars")]
    let bar = |value: f64| match value {
        value if value > 0.0 && most > 0.0 => BARS[((value / most * 7.0).ceil() as usize).clamp(1, 7)],
        _ => BARS[0],
    };
    values.iter().map(|value| value.map_or(MISSING, bar)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_follow_the_values_and_only_zero_has_the_lowest_bar() {
        let values = [0.0, 1.0, 50.0, 100.0].map(Some);
        assert_eq!(spark(&values, 100.0), "▁▂▅█");
        assert_eq!(spark(&[Some(0.0), None], 0.0), "▁ ");
    }
}
