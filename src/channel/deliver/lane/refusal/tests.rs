use std::sync::Arc;

use super::*;
use record::Shape;
use record::testing::notice;

fn refusal() -> SinkError {
    SinkError::Refused { message: "answered 503".to_owned(), retry_after: None, needs_attention: false }
}

#[test]
fn an_event_is_given_up_when_it_was_refused_for_too_long_and_not_before() {
    let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
    let mut give_up = GiveUpTimer::new(Some(Duration::from_secs(60)));
    for now in [1_000, 1_030, 1_059, 900] {
        assert_eq!(give_up.ends_with(&event, &refusal(), now), None, "{now}");
    }
    let letter = give_up.ends_with(&event, &refusal(), 1_060).unwrap();
    assert_eq!(letter.json, event.record().event());
    let GivenUp { reason, attempts, since, at, .. } = letter.facts;
    assert_eq!((&*reason, attempts, since, at), ("answered 503", 5, 1_000, 1_060));
}

#[test]
fn without_a_limit_nothing_is_given_up_nor_is_what_the_system_refuses() {
    let event = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
    let io = || SinkError::Io { doing: "writing".to_owned(), source: std::io::ErrorKind::StorageFull.into() };
    let (mut for_ever, mut short) = (GiveUpTimer::new(None), GiveUpTimer::new(Some(Duration::ZERO)));
    assert_eq!(for_ever.ends_with(&event, &refusal(), i64::MAX), None);
    assert_eq!(short.ends_with(&event, &io(), i64::MAX), None);
}
