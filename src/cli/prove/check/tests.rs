use std::ffi::OsString;

use super::*;
use crate::config::Text;

const GOOD: [(&str, &str); 8] = [
    ("CHANNELD_API__API_KEY", "key-do-not-show"),
    ("CHANNELD_VERIFICATION__ORG_ID", "org_1"),
    ("CHANNELD_CHANNELS__A__ID", "7c9e6679-7425-40de-944b-e07fc1f90ae7"),
    ("CHANNELD_CHANNELS__A__SINKS", "hook"),
    ("CHANNELD_CHANNELS__A__START", "15520"),
    ("CHANNELD_SINKS__HOOK__TYPE", "webhook"),
    ("CHANNELD_SINKS__HOOK__URL", "https://ledger.internal/hooks?token=do-not-show"),
    ("CHANNELD_SINKS__HOOK__SECRET", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
];

fn printed(json: bool, variables: &[(&str, &str)]) -> (bool, String, String) {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let loaded = Config::of(Text::default(), variables).map(|loaded| loaded.config);
    let found = Found { loaded: &loaded, effective: None, asked: None };
    print(&found, json, &mut out, &mut errors).expect("memory takes it");
    (loaded.is_ok(), String::from_utf8(out).expect("text"), String::from_utf8(errors).expect("text"))
}

#[test]
fn a_valid_configuration_is_summed_up_without_its_secrets() {
    for json in [false, true] {
        let (code, out, errors) = printed(json, &GOOD);
        assert_eq!((code, errors.as_str()), (true, ""), "{out}");
        for shown in ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "hook", "15520", "/var/lib/channeld", "0x"] {
            assert!(out.contains(shown), "{shown} in {out}");
        }
        assert!(!out.contains("do-not-show") && !out.contains("whsec_"), "{out}");
    }
    assert!(printed(false, &GOOD).1.contains("4 of 10 signers"));
}

#[test]
fn what_becomes_of_a_file_is_said() {
    let file = [
        ("CHANNELD_CHANNELS__A__SINKS", "hook, file"),
        ("CHANNELD_SINKS__FILE__TYPE", "file"),
        ("CHANNELD_SINKS__FILE__PATH", "/var/lib/channeld/events.jsonl"),
        ("CHANNELD_SINKS__FILE__ROTATE_SIZE", "100MiB"),
        ("CHANNELD_SINKS__FILE__ROTATE_EVERY", "1h"),
        ("CHANNELD_SINKS__FILE__COMPRESS", "zstd"),
        ("CHANNELD_SINKS__FILE__KEEP_FILES", "30"),
        ("CHANNELD_SINKS__FILE__MODE", "0640"),
    ];
    let variables = [&GOOD[..3], &GOOD[4..], &file].concat();
    let shown = "file /var/lib/channeld/events.jsonl, closed at 100.0 MiB and every 1h as events-{time}.jsonl, \
                 compressed with zstd, kept: 30 files, as json";
    let (_, out, errors) = printed(false, &variables);
    assert!(out.contains(shown), "{out}{errors}");
    let object: Value = serde_json::from_str(&printed(true, &variables).1).expect("one JSON object");
    let file = &object["sinks"]["file"];
    assert_eq!((&file["mode"], &file["rotation"]["size"]), (&json!("0640"), &json!(104_857_600)));
}

#[test]
fn of_a_webhook_is_said_what_is_set_and_no_value() {
    let secrets =
        "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY= whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    let more = [
        ("CHANNELD_SINKS__HOOK__SECRET", secrets),
        ("CHANNELD_SINKS__HOOK__HEADERS__TENANT", "value-do-not-show"),
        ("CHANNELD_SINKS__HOOK__BEARER_TOKEN", "token-do-not-show"),
        ("CHANNELD_SINKS__HOOK__PROXY", "http://proxy:3128"),
        ("CHANNELD_SINKS__HOOK__BATCH_EVENTS", "100"),
        ("CHANNELD_SINKS__HOOK__COMPRESS", "gzip"),
        ("CHANNELD_SINKS__HOOK__RATE_LIMIT", "5/m"),
    ];
    let variables = [&GOOD[..7], &more].concat();
    let (_, out, errors) = printed(false, &variables);
    let said = "webhook https://ledger.internal/hooks (signed by 1 secret v1 and 1 v1a, headers authorization tenant, \
                compressed with gzip, 5/m at most, through http://proxy:3128/, batches of 100 at most), as json";
    assert!(out.contains(said), "{out}{errors}");
    let (_, json, _) = printed(true, &variables);
    let object: Value = serde_json::from_str(&json).expect("one JSON object");
    let hook = &object["sinks"]["hook"];
    assert_eq!((&hook["secrets"], &hook["batch_events"]), (&json!({"v1": 1, "v1a": 1}), &json!(100)));
    assert!(!format!("{out}{json}").contains("do-not-show") && !format!("{out}{json}").contains("whs"), "{out}{json}");
}

#[test]
fn an_invalid_one_exits_with_78_and_every_problem() {
    let (code, out, errors) = printed(false, &GOOD[2..]);
    assert_eq!((code, out.as_str()), (false, ""));
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.starts_with("\u{1b}[31mapi.api_key\u{1b}[0m: is missing"), "{errors:?}");

    let (_, out, _) = printed(true, &GOOD[2..]);
    let object: Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!(object["problems"][0]["key"], "api.api_key");
}
