use super::*;

#[test]
fn a_name_in_two_spellings_is_ambiguous_whichever_comes_last() {
    for json in [
        r#"{"proofs":1,"PROOFS":2}"#,
        r#"{"proofſ":2,"proofs":1}"#,
        r#"{"proofs":1,"proofs":1}"#,
        r#"{"Proofs":1}"#,
        r#"{"proofs":1,"PROO\u0046S":1}"#,
    ] {
        let object = Object::read(json.as_bytes()).expect("an object");
        assert_eq!(object.get::<u8>("proofs"), Err(Malformed::Ambiguous("proofs")), "{json}");
    }
}

#[test]
fn null_is_absent_and_other_shapes_are_named() {
    let object = Object::read(br#"{"a":null,"b":"text"}"#).expect("an object");
    assert_eq!(object.require::<u8>("a"), Err(Malformed::Missing("a")));
    assert_eq!(object.get::<u8>("b"), Err(Malformed::Shape("b")));
}

#[test]
fn a_longer_name_differs_in_every_notation() {
    let object = Object::read(r#"{"proofs_":1,"proof":2,"pröofs":3}"#.as_bytes()).expect("an object");
    assert_eq!(object.get::<u8>("proofs"), Ok(None));
}

#[test]
fn escaped_and_plain_text_are_equal() {
    for (json, text) in [
        (r#"{"a":"plain"}"#, Ok(Some("plain"))),
        (r#"{"a":""}"#, Ok(Some(""))),
        (r#"{"a":"\u0070lain\""}"#, Ok(Some("plain\""))),
        (r#"{"a":"\\"}"#, Ok(Some("\\"))),
        (r#"{"a":null}"#, Ok(None)),
        (r#"{"a":"half a pair: \ud800"}"#, Err(Malformed::Shape("a"))),
        (r#"{"a":["plain"]}"#, Err(Malformed::Shape("a"))),
    ] {
        let object = Object::read(json.as_bytes()).expect("an object");
        assert_eq!(object.text("a").as_ref().map(Option::as_deref), text.as_ref().map(|text| *text), "{json}");
    }
}

#[test]
fn brackets_in_strings_do_not_nest() {
    let text = format!(r#"{{"a":"\"{}"}}"#, "[".repeat(2 * MAX_DEPTH));
    assert!(!is_nested_too_deeply(text.as_bytes()));
    assert!(is_nested_too_deeply("[".repeat(MAX_DEPTH + 1).as_bytes()));
}
