use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::testing::*;

use super::*;

#[test]
fn a_record_contains_the_event_byte_for_byte_except_line_breaks() {
    let json = "{\"headers\":{\"type\":\"a\",\"offset\":5},\n\"payload\":{\"n\":1.50}}";
    let event = Event::parse(json.into()).unwrap();
    let record = assembled(&event, line::UNSIGNED);
    assert_eq!(record.event(), json.replace('\n', " "));
    assert_eq!(
        record.key(),
        "00000000-0000-0000-0000-000000000001:5",
        "without an id, the key is the channel and the offset"
    );
}

#[test]
fn signed_content_is_one_trimmed_line_in_the_record() {
    for (signed, decoded) in [
        ("{\"n\":1.50}", Some("{\"n\":1.50}")),
        ("\n {\"n\":\r\n1.50}\t\n", Some("{\"n\":  1.50}")),
        ("{\"n\":\"a\nb\"}", None),
        ("{\"n\":1.50", None),
        (r#"{"n":"\ud800"}"#, None),
        (r#"{"n":"\udc00\ud800"}"#, None),
        (r#"{"n":"\ud83d\ude00"}"#, Some(r#"{"n":"\ud83d\ude00"}"#)),
        (r#"{"n":"\\ud800"}"#, Some(r#"{"n":"\\ud800"}"#)),
        ("", None),
    ] {
        let record = proved(r#""watcher_id":"W""#, signed);
        let member = decoded.map(|decoded| format!(r#","decoded":{decoded}"#)).unwrap_or_default();
        let covers = if decoded.is_some() { r#""decoded""# } else { "" };
        let verification =
            format!(r#""type":"watcher.event","verification":{{"status":"verified","covers":[{covers}]}}"#);
        let expected = format!("{verification}{member},\"event\":{}}}", text(&record.event()));
        assert!(text(&record.json).ends_with(&expected), "{}", text(&record.json));
    }
}

#[test]
fn text_beside_the_signed_member_is_not_treated_as_signed() {
    let [forged, honest] = ["forged", "honest"].map(|name| STANDARD.encode(format!(r#"{{"service":"{name}"}}"#)));
    let payload = format!(r#"{{"verifiable_event":"{forged}","verifiable_result":"{honest}"}}"#);
    let event = event("query.status", "", &payload);
    let record = assembled(&event, line::VERIFIED);
    assert_eq!(record.facts().get(Field::Service), Some("honest"));
}

fn text(json: &[u8]) -> &str {
    std::str::from_utf8(json).unwrap()
}
