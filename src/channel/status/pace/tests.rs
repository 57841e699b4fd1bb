use super::*;

fn offset(value: i64) -> Offset {
    Offset::new(value).unwrap()
}

#[test]
fn a_rate_covers_the_last_seconds() {
    let (mut pace, began) = (Pace::default(), Instant::now());
    let at = |seconds: u64| began + Duration::from_secs(seconds);
    assert_eq!(pace.per_second(offset(0), began), None);
    for second in 0..=60 {
        pace.note(offset(i64::try_from(second).unwrap() * 100), at(second));
    }
    assert_eq!(pace.per_second(offset(6_000), at(60)), Some(100.0));
    assert!(pace.samples.len() <= 18, "{}", pace.samples.len());
    // The lane makes no progress from here on.
    assert_eq!(pace.per_second(offset(6_000), at(67)), Some(53.3));
    assert_eq!(pace.per_second(offset(6_000), at(80)), Some(0.0));
    assert_eq!(pace.per_second(offset(6_000), at(8_000)), Some(0.0));
}

#[test]
fn many_updates_in_a_second_are_one_sample() {
    let (mut pace, began) = (Pace::default(), Instant::now());
    for number in 0..1_000 {
        pace.note(offset(number), began + Duration::from_millis(u64::try_from(number).unwrap()));
    }
    assert_eq!(pace.samples.len(), 1);
    assert_eq!(pace.per_second(offset(1_000), began + Duration::from_secs(1)), Some(1_000.0));
}

#[test]
fn the_remaining_time_is_known_only_while_there_is_progress() {
    assert_eq!(seconds_left(130_178, 4_400.0), Some(30));
    assert_eq!(seconds_left(1, 0.0), None);
    assert_eq!(seconds_left(0, 0.0), None);
}

#[test]
fn a_lane_with_occasional_progress_has_a_rate() {
    let (mut pace, began) = (Pace::default(), Instant::now());
    let at = |seconds: u64| began + Duration::from_secs(seconds);
    pace.note(offset(0), at(0));
    pace.note(offset(200), at(20));
    assert_eq!(pace.per_second(offset(200), at(20)), Some(10.0));
}

#[test]
fn progress_is_one_line() {
    let progress = Progress::at(69_850, 200_028, Some(4_400.2));
    assert_eq!(progress.to_string(), "69,850 of 200,028, 4,400/s, about 30 s left");
    assert_eq!(Progress::at(0, 999, None).to_string(), "0 of 999");
    assert_eq!(Progress::at(5, 1_000_000, Some(0.5)).to_string(), "5 of 1,000,000, 0.5/s, about 23 d left");
    assert_eq!(Progress::at(5, 10, Some(0.0)).to_string(), "5 of 10, 0.0/s");
    assert_eq!((progress.bar(12).as_str(), Progress::at(7, 7, None).bar(5).as_str()), ("[###-------]", "[###]"));
    assert_eq!(Progress::at(9, 7, None).bar(2), "[]");
}

#[test]
fn a_duration_is_shown_in_its_largest_unit() {
    let cases = [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d")];
    for (seconds, text) in cases {
        assert_eq!(span(seconds), text);
    }
}
