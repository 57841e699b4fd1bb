use super::*;

const AT_ONCE: Duration = Duration::ZERO;

fn is_late(pace: &Pace) -> bool {
    std::thread::sleep(Duration::from_millis(2));
    pace.standstill(AT_ONCE, String::new).is_some()
}

#[test]
fn what_the_loop_bounds_must_be_over_in_time_and_other_waits_need_not() {
    let mut pace = Pace::default();
    assert!(!is_late(&pace));
    pace.begin(&Activity::Reading, AT_ONCE, AT_ONCE);
    assert!(is_late(&pace));
    for waits in [Activity::Delivering, Activity::TooManyLate, Activity::QuarantineFull, Activity::Paused] {
        pace.begin(&waits, AT_ONCE, AT_ONCE);
        assert!(!is_late(&pace), "{waits:?}");
    }
    pace.begin(&Activity::Idle, Duration::from_secs(3600), AT_ONCE);
    assert!(!is_late(&pace), "it waits as long as it said");
    pace.begin(&Activity::Idle, AT_ONCE, AT_ONCE);
    assert!(is_late(&pace));
    pace.moved(Duration::from_secs(3600));
    assert!(!is_late(&pace), "it has moved");
    pace.begin(&Activity::Reading, AT_ONCE, AT_ONCE);
    pace.rest();
    assert!(!is_late(&pace));
}
