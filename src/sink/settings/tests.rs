use std::sync::Arc;

use super::*;
use proof::event::ChannelId;
use record::testing::notice;

const PATTERN: &str = "channeld.{channel}.{type}";

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_subject_follows_the_pattern_and_is_valid() {
    let long = "x".repeat(5_000);
    let cases = [
        ("wallet.status", "wallet.status"),
        ("a b*c>d\\r\\n\\te", "a_b_c_d___e"),
        ("", "_"),
        (".", "_._"),
        ("a..b.", "a._.b._"),
        ("ünïcode", "_n_code"),
        ("$JS.API", "_JS.API"),
        (&long, &long[..VALUE_LIMIT]),
    ];
    for (kind, expected) in cases {
        let record = notice(kind, "{}");
        let channel = &record.channel.name;
        assert_eq!(pattern(PATTERN).of(&record), format!("channeld.{channel}.{expected}"), "{kind:?}");
    }
}

#[test]
fn an_invalid_subject_pattern_is_refused() {
    for text in [
        "",
        "events",
        "{type}",
        "{channel}.{type}",
        "a..{type}",
        ".a.b",
        "a.b.",
        "a.{what}",
        "a.{type",
        "a.type}",
        "a.*",
        "a.>",
        "a. b",
        "a.ü",
        "$JS.{type}",
    ] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
    for text in [PATTERN, "a.{channel_id}", "a.x-{channel}.b.{type}.c", "one.subject"] {
        assert_eq!(pattern(text).to_string(), text);
        assert_eq!(pattern(text).has_channel_name(), text.contains("{channel}"), "{text}");
    }
}

#[test]
fn a_filter_matches_every_subject_of_its_pattern() {
    let channel = ChannelRef { name: Arc::from("one"), id: ChannelId::default() };
    let cases = [
        (PATTERN, "channeld.one.>", "channeld.*.>"),
        ("a.{channel}", "a.one", "a.*"),
        ("a.x-{channel}.b", "a.x-one.b", "a.*.b"),
        ("a.{type}.{channel}", "a.>", "a.>"),
        ("a.b-{type}", "a.>", "a.>"),
    ];
    for (text, filter, all) in cases {
        assert_eq!((&*pattern(text).filter(&channel), &*pattern(text).filter_of_all()), (filter, all), "{text}");
    }
}
