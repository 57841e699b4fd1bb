use super::*;
use channel::LateDelivery;
use ledger::PendingEvent;

#[test]
fn an_operator_request_without_a_target_is_refused() {
    for (what, members, is_one) in [
        ("retry", "channel=c0&offset=7", true),
        ("retry", "channel=c0&reason=too-few-signatures", true),
        ("retry", "channel=c0", false),
        ("drop", "offset=7", false),
        ("drop", "channel=c0&offset=-1", false),
        ("drop-dead", "channel=c0&sink=hook", true),
        ("drop-dead", "channel=c0", false),
        ("redeliver", "channel=c0&sink=hook&offset=7", false),
        ("pause", "channel=c0", true),
        ("rob", "channel=c0", false),
    ] {
        assert_eq!(OperatorRequest::parse(what, members.as_bytes()).is_some(), is_one, "{what} {members}");
    }
}

#[test]
fn the_confirmed_request_is_the_requested_one() {
    let asked = OperatorRequest::parse("drop", b"channel=c0&offset=7&reason=x%26y").unwrap();
    let members = crate::page::form(&asked.members().iter().map(|(name, value)| (*name, &**value)).collect::<Vec<_>>());
    assert_eq!(OperatorRequest::parse("drop", members.as_bytes()), Some(asked));
}

#[test]
fn an_event_counts_as_arrived_after_its_delivery() {
    let since = Timestamp::from_second(1_800_000_000).unwrap();
    let taken = |second| LateDelivery {
        offset: Offset::new(7).unwrap(),
        sink: "hook".into(),
        at: since.checked_add(SignedDuration::from_secs(second)).unwrap(),
        is_asked_for: true,
    };
    let mut journey = Journey { delivered_late: vec![taken(-1)], ..Journey::default() };
    let left_out = arrival(&journey, "hook", since).unwrap().unwrap();
    assert_eq!(
        left_out, "Sink hook already has the event, or its filter excludes it.",
        "earlier deliveries do not count"
    );
    let owed = std::iter::once("hook".into()).collect();
    journey.late = Some(PendingEvent { owed, ..PendingEvent::default() });
    assert_eq!(arrival(&journey, "hook", since), None);
    journey.delivered_late.push(taken(0));
    let said = arrival(&journey, "hook", since).unwrap().unwrap();
    assert_eq!(said, "Replayed to hook at 08:00:00 UTC.");
}

#[test]
fn an_operator_request_redirects_only_to_own_pages() {
    let asked =
        OperatorRequest::parse("redeliver", b"channel=c0&sink=hook&offset=7&channel_id=//evil.example").unwrap();
    assert_eq!(asked.back(), "/held");
}
