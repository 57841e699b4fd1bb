use super::*;

#[test]
fn a_malformed_record_is_still_located_by_its_offset() {
    let json = Bytes::from_static(br#"{"event_id":7,"headers":{"offset":5,"type":null},"payload":3}"#);
    let raw = RawEvent::locate(json.clone()).expect("the offset is readable");
    assert_eq!((raw.offset.get(), raw.id, &raw.json), (5, None, &json));
    assert!(Event::parse(json).is_err());
}

#[test]
fn a_repeated_name_is_read_as_most_parsers_do() {
    let json = r#"{"headers":{"offset":1},"headers":{"offset":2,"offset":3,"type":"wallet.status"}}"#;
    assert_eq!(RawEvent::locate(Bytes::from(json)).map(|raw| raw.offset.get()), Some(3));
    assert!(Event::parse(Bytes::from(json)).is_err());
}

#[test]
fn a_too_deeply_nested_event_is_still_located() {
    let (open, close) = ("[".repeat(20_000), "]".repeat(20_000));
    let json = Bytes::from(format!(r#"{{"headers":{{"type":"a","offset":4}},"payload":{open}{close}}}"#));
    assert_eq!(RawEvent::locate(json.clone()).map(|raw| raw.offset.get()), Some(4));
    assert_eq!(Event::parse(json).map(|_| ()), Err(Malformed::TooDeep));
}

#[test]
fn json_that_some_parsers_refuse_is_malformed() {
    let parsed = |extra: &str| {
        let json = format!(r#"{{"x":{extra},"headers":{{"type":"wallet.status","offset":1}},"payload":{{}}}}"#);
        Event::parse(json.into()).map(|_| ())
    };
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(parsed(&nested(json::MAX_DEPTH - 1)), Ok(()));
    assert_eq!(parsed(&nested(json::MAX_DEPTH)), Err(Malformed::TooDeep));
    for good in
        [r#""\ud83d\ude00""#, r#""\\ud800""#, r#""\uD83D\uDE00\u0041\n""#, r#"{"\ud83d\ude00":1}"#, r#""\ud7ff\ue000""#]
    {
        assert_eq!(parsed(good), Ok(()), "{good}");
    }
    for half in
        [r#""\ud800""#, r#""\ud83d\ud83d\ude00""#, r#""\ude00""#, r#""a\uD800b""#, r#"{"\udfff":1}"#, r#""\\\udbff""#]
    {
        assert_eq!(parsed(half), Err(Malformed::HalfSurrogate), "{half}");
    }
}

#[test]
fn without_an_offset_there_is_no_location() {
    for json in ["{}", "7", r#"{"headers":{}}"#, r#"{"headers":{"offset":-1}}"#, r#"{"headers":{"offset":5.0}}"#] {
        assert_eq!(RawEvent::locate(Bytes::from(json)), None, "{json}");
    }
}

#[test]
fn unknown_kinds_and_fields_are_tolerated() {
    let json = r#"{"new":[1e400],"headers":{"type":"comet.sighted","offset":1,"more":{}},"payload":{"x":1}}"#;
    let event = Event::parse(Bytes::from(json)).expect("well formed");
    assert_eq!(event.kind, EventType::Other("comet.sighted".into()));
    assert!(!event.proof_is_due());
}

#[test]
fn signed_text_needs_a_proof_whatever_the_status() {
    let due = |kind: &str, status: &str, text: &str| {
        let headers = format!(r#"{{"type":"{kind}","offset":1,"proofs":[]}}"#);
        let payload = format!(r#"{{"status":"{status}"{text}}}"#);
        let json = format!(r#"{{"headers":{headers},"payload":{payload}}}"#);
        Event::parse(Bytes::from(json)).expect("well formed").proof_is_due()
    };
    for status in ["failed", "sent", "a-new-status", "cancelled", "reverted", "confirmed", "completed"] {
        assert!(due("operation.status", status, r#","verifiable_event":"e30=""#), "{status}");
        assert!(due("query.status", status, r#","verifiable_result":"e30=""#), "{status}");
        for kind in ["operation.status", "query.status"] {
            assert!(!due(kind, status, ""), "{kind} {status}: a notice");
            assert!(
                !due(kind, status, r#","verifiable_event":"","verifiable_result":"""#),
                "{kind} {status}: a notice"
            );
        }
        assert!(!due("wallet.status", status, r#","verifiable_event":"e30=""#), "{status}: never signed");
        assert!(due("watcher.event", status, ""), "{status}: always signed");
    }
}

/// The unknown values of a record, as `what: value`.
fn unknown(json: &str) -> Vec<String> {
    let event = Event::parse(Bytes::from(json.to_owned())).expect("well formed");
    event.unknown.iter().map(|UnknownValue { what, value }| format!("{}: {value}", <&str>::from(what))).collect()
}

#[test]
fn unknown_values_are_found_wherever_they_are() {
    let record = |more: &str, headers: &str, payload: &str| {
        format!(r#"{{{more}"headers":{{{headers},"offset":1}},"payload":{payload}}}"#)
    };
    let operation = r#""type":"operation.status""#;
    let proof = |members: &str| format!(r#"{operation},"proofs":[{{{members}}}]"#);
    for (json, expected) in [
        (record("", operation, r#"{"status":"sideways"}"#), "status: sideways"),
        (record("", operation, r#"{"status":"confirmed","gas":7}"#), "payload_member: gas"),
        (record("", r#""type":"wallet.status""#, r#"{"status":"reverted"}"#), "status: reverted"),
        (record("", r#""type":"watcher.status""#, r#"{"wallet_id":""}"#), "payload_member: wallet_id"),
        (record("", r#""type":"comet.sighted""#, r#"{"status":"x","y":1}"#), "type: comet.sighted"),
        (record(r#""cursor":1,"#, operation, "{}"), "envelope_member: cursor"),
        (record("", r#""type":"operation.status","more":1"#, "{}"), "envelope_member: more"),
        (record("", &proof(r#""alg":"bls""#), "{}"), "proof: bls"),
        (record("", &proof(r#""alg":"","zk":1"#), "{}"), "proof: zk"),
        (record("", r#""type":"operation.status","proofs":[{},{"zk":1}]"#, "{}"), "proof: zk"),
    ] {
        assert_eq!(unknown(&json), [expected], "{json}");
    }
}

#[test]
fn the_contract_of_the_service_is_known() {
    let none: [&str; 0] = [];
    for (kind, statuses) in [
        ("watcher.status", "pending active failed archiving archived archive_failed"),
        ("wallet.status", "pending deploying deployed failed archived"),
        ("query.status", "accepted sending sent completed failed expired"),
        ("operation.status", "pending_signature accepted sending sent broadcasting confirmed_latest confirmed_safe"),
        ("operation.status", "confirmed failed reverted cancelled expired"),
    ] {
        for status in statuses.split(' ') {
            let repeated = format!(r#""event_id":null,"channel_id":"c","created_at":"t","type":"{kind}""#);
            let headers = format!(r#"{{"type":"{kind}","offset":1,"proofs":[]}}"#);
            let json = format!(r#"{{{repeated},"headers":{headers},"payload":{{"status":"{status}"}}}}"#);
            assert_eq!(unknown(&json), none, "{json}");
        }
    }
    let proof = r#"{"alg":"ecdsa-secp256k1","ocr_report":"0x","ocr_context":"0x","signatures":[]}"#;
    let json = format!(r#"{{"headers":{{"type":"watcher.event","offset":1,"proofs":[{proof}]}},"payload":{{}}}}"#);
    assert_eq!(unknown(&json), none);
}

#[test]
fn the_headers_decide_about_the_type() {
    let headers = r#""headers":{"type":"watcher.event","offset":7,"proofs":[]}"#;
    let beside = r#""type":"wallet.status","offset":8,"proofs":[{"alg":"ecdsa-secp256k1"}]"#;
    for json in [
        format!(r#"{{{beside},{headers},"payload":{{"verifiable_event":"e30="}}}}"#),
        format!(r#"{{{headers},"payload":{{"verifiable_event":"e30="}},{beside}}}"#),
    ] {
        let event = Event::parse(Bytes::from(json)).expect("well formed");
        assert_eq!((&event.kind, event.raw.offset.get()), (&EventType::WatcherEvent, 7));
        assert!(matches!(event.proofs, Proofs::None), "{:?}", event.proofs);
        assert_eq!(event.payload.signed.as_deref(), Some("e30="));
    }
}

#[test]
fn every_member_of_a_payload_is_known() {
    let none: [&str; 0] = [];
    for (kind, members) in [
        (
            "watcher.event",
            "watcher_id chain_selector event_hash verifiable_event timestamp workflow_id workflow_execution_id",
        ),
        ("watcher.status", "status status_reason watcher_id chain_selector timestamp service workflow_id"),
        ("wallet.status", "status status_reason wallet_id address chain_selector timestamp"),
        ("operation.status", "status status_reason operation_id wallet_operation_id address chain_selector timestamp"),
        ("operation.status", "digest transactions event_hash verifiable_event operation_writer_workflow_id"),
        ("operation.status", "operation_writer_workflow_execution_id operation_status_workflow_id"),
        ("operation.status", "operation_status_workflow_execution_id"),
        ("query.status", "query_id status target chain_selector timestamp event_hash verifiable_result workflow_id"),
        ("query.status", "workflow_execution_id"),
    ] {
        let members: Vec<_> = members.split(' ').map(|member| format!(r#""{member}":null"#)).collect();
        let json = format!(r#"{{"headers":{{"type":"{kind}","offset":1}},"payload":{{{}}}}}"#, members.join(","));
        assert_eq!(unknown(&json), none, "{json}");
    }
}

#[test]
fn an_unknown_value_is_short_and_printable() {
    let shown = |text: &str| UnknownValue::new(UnknownPart::Status, text).value;
    assert_eq!(&*shown("a\u{1b}[31m\n\u{7f}b"), r"a\u{1b}[31m\n\u{7f}b");
    assert_eq!(*shown(&"é".repeat(500)), *"é".repeat(MAX_UNKNOWN_LENGTH));
    let escaped = shown(&"\n".repeat(500));
    assert!(escaped.len() <= MAX_UNKNOWN_LENGTH && escaped.ends_with(r"\n"), "{escaped}");
}

#[test]
fn an_event_has_a_bounded_number_of_unknown_values() {
    let members: Vec<_> = (0..1000).map(|number| format!(r#""m{number}":1"#)).collect();
    let json = format!(r#"{{"headers":{{"type":"wallet.status","offset":1}},"payload":{{{}}}}}"#, members.join(","));
    assert_eq!(unknown(&json).len(), 50);
}
