use super::*;
use crate::api::{ListDeadLetters, ShowDeadLetter};
use proof::event::Offset;

#[test]
fn members_stand_in_the_query_and_what_they_say_cannot_lead_elsewhere() {
    let (channel, sink) = ("../a b".to_owned(), "{offset}?".to_owned());
    let offset = Offset::new(7).unwrap();
    let show = ShowDeadLetter { channel: channel.clone(), sink: sink.clone(), offset, event_id: None };
    assert_eq!(uri(&show), "/dead-letters/event?channel=..%2Fa+b&offset=7&sink=%7Boffset%7D%3F");
    let list = ListDeadLetters { channel: Some(channel), sink: Some(sink) };
    assert_eq!(uri(&list), "/dead-letters?channel=..%2Fa+b&sink=%7Boffset%7D%3F");
    assert_eq!(uri(&ListDeadLetters { channel: None, sink: None }), "/dead-letters?");
}

#[test]
fn an_answer_that_is_not_the_expected_one_is_said_with_its_status() {
    let failed = |status, body: &[u8]| decode::<Vec<Offset>>(status, body).unwrap_err();
    let refusal = Refusal::Usage("no such channel".to_owned());
    assert_eq!(failed(StatusCode::BAD_REQUEST, &serde_json::to_vec(&refusal).unwrap()), refusal);
    for (status, body) in [(StatusCode::NOT_FOUND, &b""[..]), (StatusCode::OK, b"{}")] {
        let said = failed(status, body).to_string();
        assert!(said.contains(status.as_str()) && said.contains("another version"), "{said}");
    }
    assert_eq!(decode::<Vec<Offset>>(StatusCode::OK, b"[7]"), Ok(vec![Offset::new(7).unwrap()]));
}
