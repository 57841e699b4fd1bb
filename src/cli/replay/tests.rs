use super::*;

#[test]
fn a_request_carries_no_more_than_the_daemon_takes_or_one_event() {
    let event = |bytes: usize| RawEvent { offset: Offset::ZERO, id: None, json: vec![b' '; bytes].into() };
    let sizes = |page: &[RawEvent]| requests(page).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(sizes(&[event(10), event(10)]), [2]);
    assert_eq!(sizes(&[event(300_000), event(300_000), event(10)]), [1, 2]);
    assert_eq!(sizes(&[event(10), event(600_000), event(10)]), [1, 1, 1]);
}
