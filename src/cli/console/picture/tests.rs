use super::*;

const NOW: i64 = 1_800_000_000;

fn sample(age: i64, lag: u32) -> Sample {
    Sample { at: NOW - age, lag_events: Some(lag), events_per_second: None, delivery_seconds: None }
}

#[test]
fn a_line_has_a_gap_where_nothing_was_noted() {
    let samples = [sample(3_000, 4), sample(2_940, 2), sample(120, 0), sample(60, 4), sample(0, 1)];
    let runs = runs(&samples, QUANTITIES[0].of, NOW, 4.0);
    assert_eq!(runs, ["M40.0 4.0 L44.0 23.5", "M232.0 43.0 L236.0 4.0 L240.0 33.2"]);
}

#[test]
fn an_hour_that_is_not_whole_says_since_when_it_is_known() {
    let young = last_hour(&[sample(600, 4), sample(0, 1)], NOW).into_string();
    assert!(young.contains("2027-01-15 07:50:00") && young.contains("at most 4 in the last hour"), "{young}");
    assert!(young.contains("H200.0"), "what is before is drawn as unknown: {young}");
    let whole = last_hour(&[sample(3_560, 4), sample(0, 1)], NOW).into_string();
    assert!(whole.contains("The last hour.") && !whole.contains("noted it since"), "{whole}");
    assert!(last_hour(&[], NOW).into_string().contains("nothing is known of the last hour"));
}
