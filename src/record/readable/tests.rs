use super::*;
use crate::testing::{notice, proved};

#[test]
fn a_line_says_what_happened_and_how_it_was_proved() {
    let line = |record: &Record| Readable::of(record).to_string();
    let verified = proved(r#""watcher_id":"W","timestamp":1715688015"#, r#"{"name":"Transfer","service":"dvp"}"#);
    let expected = "verified c     5  2024-05-14T12:00:15Z  watcher.event     dvp.Transfer                 ";
    assert!(line(&verified).starts_with(expected), "{}", line(&verified));
    let failed = notice("operation.status", r#"{"status":"failed","status_reason":"out of gas"}"#);
    let expected = "operation.status  failed: out of gas           no proof, by its nature";
    assert!(line(&failed).ends_with(expected), "{}", line(&failed));
    assert!(line(&notice("wallet.status", r#"{"status":"deployed","status_reason":""}"#)).contains("  deployed  "));
}

#[test]
fn what_the_service_says_of_a_name_is_not_taken_for_signed() {
    let record = proved(r#""service":"forged","name":"forged""#, r#"{"other":1}"#);
    assert_eq!(Readable::of(&record).what, "");
}

#[test]
fn a_line_stays_one_short_line_whatever_an_event_holds() {
    let reason = format!("a\\nverified c 6\\u001b[31m \\u202e{{{{ 7 }}}}\\u2028\\\"{}", "x".repeat(100_000));
    let payload = format!(r#"{{"status":"failed","status_reason":"{reason}"}}"#);
    let long = "k".repeat(10_000);
    for kind in ["operation.status", &long] {
        let line = Readable::of(&notice(kind, &payload)).to_string();
        assert!(line.chars().count() < 500, "{line}");
        assert!(!line.contains(|c: char| c.is_control() || "\u{202e}\u{2028}".contains(c)), "{line}");
        assert!(line.contains("{{ 7 }}"), "{line}");
    }
}

#[test]
fn a_text_is_cut_between_characters_and_no_longer_than_its_limit() {
    assert_eq!(limited("abc", 3), "abc");
    assert_eq!(limited("abcd", 3), "ab…");
    assert_eq!(limited("😀😀😀", 6), "😀😀😀");
    assert_eq!(limited("😀😀😀", 5), "😀😀…");
    assert_eq!(limited("a😀b", 3), "a…", "no half of a character, and nothing behind it");
    assert_eq!(limited("abc", 0), "");
}
