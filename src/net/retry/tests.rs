use super::*;

const POLICY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(2), max_wait: Duration::from_secs(60) };

#[test]
fn waits_grow_to_the_maximum_and_never_leave_the_bounds() {
    let mut retry = Retry::new(POLICY);
    let waits: Vec<_> = (0..1000).map(|_| retry.next_wait(None)).collect();
    assert!(waits.iter().all(|wait| (POLICY.wait..=POLICY.max_wait).contains(wait)), "{waits:?}");
    assert!(waits[0] < Duration::from_millis(2500) && waits[500] > Duration::from_secs(40), "{waits:?}");
}

#[test]
fn what_the_other_side_asks_for_is_obeyed_beyond_the_maximum() {
    let mut retry = Retry::new(POLICY);
    assert_eq!(retry.next_wait(Some(Duration::from_secs(600))), Duration::from_secs(600));
}

#[test]
fn a_success_starts_over() {
    let mut retry = Retry::new(POLICY);
    for _ in 0..10 {
        retry.next_wait(None);
    }
    retry.reset();
    assert!(retry.next_wait(None) < Duration::from_millis(2500));
    assert_eq!(retry.attempt(), 1);
}

#[test]
fn without_jitter_each_wait_is_the_same_to_the_nanosecond() {
    let day = Duration::from_secs(86_400);
    let mut retry = Retry::with_jitter(RetryPolicy { wait: day, max_wait: 2 * day }, 0.0);
    for _ in 0..10_000 {
        assert_eq!(retry.next_wait(None), day);
        retry.reset();
    }
}
