//! Draws the number of events in each of the last minutes, according to the newest rows of the table.

use jiff::Timestamp;
use maud::{Markup, html};

use crate::tables::{EventFilter, Sample};
use channel::grouped;

/// How many minutes are drawn.
const MINUTES: usize = 60;

/// With fewer known minutes than this, nothing is drawn.
const FEWEST: usize = 5;

/// The size of the picture. The browser stretches it to the width of the page.
const BAR: usize = 10;
const HEIGHT: usize = 40;

/// The events per minute that the filter accepts. Draws nothing for a word search, because the sample does not contain
/// the words, and nothing if no event is that new.
pub(super) fn histogram(sample: &Sample, filter: &EventFilter, now: Timestamp) -> Markup {
    let counts = per_minute(sample, filter, now);
    let (total, highest) = (counts.iter().sum::<usize>(), counts.iter().copied().max().unwrap_or(0));
    if !filter.words.is_empty() || counts.len() < FEWEST || total == 0 {
        return html! {};
    }
    let said = format!(
        "{} in the last {} minutes, at most {highest} per minute",
        crate::page::events(total as u64),
        counts.len()
    );
    html! {
        figure.histogram {
            figcaption { "Events per minute" span.most { "last " (counts.len()) " min, max. " (grouped(highest as u64)) } }
            svg viewBox=(format!("0 0 {} {HEIGHT}", MINUTES * BAR)) preserveAspectRatio="none" role="img" aria-label=(said) {
                @for (age, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                    @let height = (count * HEIGHT).div_ceil(highest).max(2);
                    rect x=((MINUTES - 1 - age) * BAR + 1) y=(HEIGHT - height) width=(BAR - 2) height=(height) {}
                }
            }
        }
    }
}

/// The number of accepted events in each minute, the current minute first. If the sample does not contain all rows of
/// the table, the minutes that it contains only partly are left out.
fn per_minute(sample: &Sample, filter: &EventFilter, now: Timestamp) -> Vec<usize> {
    let minute = |time: Timestamp| usize::try_from(now.as_second() / 60 - time.as_second() / 60).ok();
    let is_whole = sample.total <= sample.rows.len() as u64;
    let oldest = sample.rows.last().and_then(|row| minute(row.time?)).filter(|_| !is_whole);
    let mut counts = vec![0; oldest.unwrap_or(MINUTES).min(MINUTES)];
    for row in &sample.rows {
        let is_accepted = filter.chosen.iter().all(|(facet, values)| {
            values.is_empty() || facet.of(row).is_some_and(|value| values.iter().any(|chosen| chosen == value))
        });
        let is_accepted = is_accepted && filter.from.is_none_or(|from| row.time >= Some(from));
        let is_accepted = is_accepted && filter.to.is_none_or(|to| row.time <= Some(to));
        if let Some(count) = row.time.and_then(minute).and_then(|age| counts.get_mut(age)).filter(|_| is_accepted) {
            *count += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Facet, Row};

    const NOW: i64 = 1_800_000_030;

    fn row(age: i64, kind: &str) -> Row {
        Row { time: Timestamp::from_second(NOW - age).ok(), kind: kind.to_owned(), ..Row::default() }
    }

    fn counts(sample: &Sample, filter: &EventFilter) -> Vec<usize> {
        per_minute(sample, filter, Timestamp::from_second(NOW).unwrap())
    }

    #[test]
    fn each_minute_counts_the_events_that_the_filter_accepts() {
        let sample =
            Sample::of(vec![row(0, "a"), row(29, "b"), row(31, "a"), row(600, "a"), row(4_000, "a"), Row::default()]);
        let all = counts(&sample, &EventFilter::default());
        assert_eq!((all.len(), all[0], all[1], all[10]), (MINUTES, 2, 1, 1));
        assert_eq!(all.iter().sum::<usize>(), 4, "older events and events without a time are not counted");
        let chosen = EventFilter { chosen: [(Facet::Type, vec!["b".to_owned()])].into(), ..EventFilter::default() };
        assert_eq!(counts(&sample, &chosen).iter().sum::<usize>(), 1);
        let words = EventFilter { words: vec!["a".to_owned()], ..EventFilter::default() };
        assert_eq!(histogram(&sample, &words, Timestamp::from_second(NOW).unwrap()).into_string(), "");
    }

    #[test]
    fn a_minute_that_the_sample_contains_only_partly_is_not_drawn() {
        let sample = Sample { rows: vec![row(0, "a"), row(500, "a"), row(510, "a")], total: 9_000 };
        let known = counts(&sample, &EventFilter::default());
        assert_eq!((known.len(), known.iter().sum::<usize>()), (8, 1));
        let html = histogram(&sample, &EventFilter::default(), Timestamp::from_second(NOW).unwrap()).into_string();
        assert!(html.contains("1 event in the last 8 minutes, at most 1 per minute"), "{html}");
    }
}
