use super::*;

/// A minute of the clock.
const BEGAN: i64 = 1_800_000_000 - 1_800_000_000 % MINUTE;

fn hour(samples: impl IntoIterator<Item = i64>) -> Hour {
    let mut hour = Hour::default();
    for at in samples {
        hour.note(at, Some(1));
    }
    hour
}

fn times(hour: &Hour, now: i64) -> Vec<i64> {
    hour.samples(now).map(|sample| sample.at - BEGAN).collect()
}

#[test]
fn a_minute_has_one_sample_and_an_hour_is_kept() {
    let looks = (0..3 * HOUR).step_by(10).map(|second| BEGAN + 7 + second);
    let hour = hour(looks.clone());
    let now = looks.last().unwrap();
    let kept = times(&hour, now);
    assert_eq!(kept.len(), 60);
    assert!(kept.windows(2).all(|pair| pair[1] - pair[0] == MINUTE), "{kept:?}");
    assert_eq!(hour.samples(now).filter(|sample| sample.events_per_second.is_none()).count(), 0);
    assert!(hour.samples.capacity() * size_of::<Sample>() <= 2_048, "{}", hour.samples.capacity());
}

#[test]
fn a_sample_counts_deliveries_since_the_previous_one() {
    let mut hour = hour([BEGAN]);
    let first = hour.samples(BEGAN).next().unwrap();
    assert_eq!((first.lag_events, first.events_per_second, first.delivery_seconds), (Some(1), None, None));
    hour.took(90, Some(Duration::from_secs(2)));
    hour.took(30, Some(Duration::from_secs(6)));
    hour.took(30, None);
    let now = hour.sample(BEGAN + 50, Some(u64::MAX));
    assert_eq!((now.lag_events, now.events_per_second, now.delivery_seconds), (Some(u32::MAX), Some(3.0), Some(3.0)));
    hour.note(BEGAN + 60, None);
    let second = hour.samples(BEGAN + 60).last().unwrap();
    assert_eq!((second.lag_events, second.events_per_second, second.delivery_seconds), (None, Some(2.5), Some(3.0)));
    hour.note(BEGAN + 120, None);
    let third = hour.samples(BEGAN + 120).last().unwrap();
    assert_eq!((third.events_per_second, third.delivery_seconds), (Some(0.0), None), "no event was delivered");
}

#[test]
fn a_gap_has_no_samples() {
    let mut hour = hour([BEGAN, BEGAN + 60]);
    hour.took(1_000, Some(Duration::from_secs(1)));
    hour.note(BEGAN + 60 + GAP + 1, Some(2));
    let after = hour.samples(BEGAN + HOUR).last().unwrap();
    assert_eq!((after.lag_events, after.events_per_second, after.delivery_seconds), (Some(2), None, None));
    assert_eq!(times(&hour, BEGAN + HOUR), [0, 60, 61 + GAP]);
    assert_eq!(times(&hour, BEGAN + 2 * HOUR), [0; 0], "an hour later");
}

#[test]
fn a_clock_set_back_leaves_no_samples_in_the_future() {
    let mut hour = hour([BEGAN, BEGAN + 600, BEGAN + 660]);
    hour.took(5, None);
    hour.note(BEGAN + 120, None);
    assert_eq!(times(&hour, BEGAN + 120), [0, 120]);
    assert_eq!(hour.samples(BEGAN + 120).last().unwrap().events_per_second, None);
}
