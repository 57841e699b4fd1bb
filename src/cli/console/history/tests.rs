use super::*;

#[test]
fn counters_of_all_sinks_of_a_channel_are_one() {
    let text = "# HELP x\nchanneld_events_delivered_total{channel=\"c0\",sink=\"a\"} 3\nchanneld_events_delivered_total{channel=\"c0\",sink=\"b\"} 4\n\
                channeld_delivered_after_reading_seconds_sum{channel=\"c0\",sink=\"a\"} 0.5\nother{channel=\"c0\"} 9\nno_labels 1\n";
    let counted = counted(text);
    assert_eq!(counted[&*Arc::<str>::from("c0")], Counted { delivered: 7.0, waited: 0.5, waits: 0.0 });
}

#[test]
fn samples_are_bounded_and_a_daemon_that_is_away_is_a_gap() {
    let mut history = History::default();
    for second in 0..1000 {
        history.note(Timestamp::from_second(second).unwrap(), None, "");
    }
    let series = history.series("c0", |seen| seen.lag);
    assert_eq!(series.len(), KEPT);
    assert!(series.iter().all(|(_, value)| value.is_none()));
}
