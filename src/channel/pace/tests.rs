use tokio::time::advance;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Whether it is late a moment from now.
async fn is_late(pace: &Pace) -> bool {
    advance(SECOND).await;
    pace.standstill(SECOND / 2, String::new).is_some()
}

#[tokio::test(start_paused = true)]
async fn what_the_loop_bounds_must_be_over_in_time_and_other_waits_need_not() {
    let mut pace = Pace::default();
    assert!(!is_late(&pace).await);
    pace.begin(&Activity::Reading, Duration::ZERO);
    assert!(is_late(&pace).await);
    for waits in [Activity::Delivering, Activity::TooManyLate, Activity::QuarantineFull, Activity::Paused] {
        pace.begin(&waits, Duration::ZERO);
        assert!(!is_late(&pace).await, "{waits:?}");
    }
    pace.begin(&Activity::Idle, 3600 * SECOND);
    assert!(!is_late(&pace).await, "it waits as long as it said");
    pace.moved();
    assert!(!is_late(&pace).await, "it still waits as long as it said");
    pace.begin(&Activity::Idle, Duration::ZERO);
    assert!(is_late(&pace).await);
    pace.moved();
    assert_eq!(pace.standstill(SECOND / 2, String::new), None, "it has moved");
    assert!(is_late(&pace).await);
    pace.begin(&Activity::Reading, Duration::ZERO);
    pace.rest();
    assert!(!is_late(&pace).await);
}
