use std::ffi::OsString;

use serde_json::Value;

use super::*;
use crate::config::ConfigText;

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
    let loaded = Config::of(ConfigText::default(), variables);
    match &loaded {
        Ok(loaded) => print(&loaded.config, None, None, json, &mut out),
        Err(error) => print_problems(error, json, &mut out, &mut errors),
    }
    .expect("memory takes it");
    (loaded.is_ok(), String::from_utf8(out).expect("text"), String::from_utf8(errors).expect("text"))
}

#[test]
fn a_valid_configuration_is_summarized_without_secrets() {
    for json in [false, true] {
        let (code, out, errors) = printed(json, &GOOD);
        assert_eq!((code, errors.as_str()), (true, ""), "{out}");
        for shown in ["7c9e6679-7425-40de-944b-e07fc1f90ae7", "hook", "15520", "/var/lib/channeld", "0x"] {
            assert!(out.contains(shown), "{shown} in {out}");
        }
        assert!(!out.contains("do-not-show") && !out.contains("whsec_"), "{out}");
    }
}

/// The part of the summary below this heading.
fn block<'o>(out: &'o str, heading: &str) -> &'o str {
    let (_, below) = out.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading} in {out}"));
    below.split("\n\n").next().unwrap_or(below).trim()
}

#[test]
fn a_channel_is_described_by_its_keys() {
    let expect = [
        ("CHANNELD_CHANNELS__A__EXPECT__NAME", "Mint, Burn"),
        ("CHANNELD_CHANNELS__A__EXPECT__SERVICE", "fund"),
        ("CHANNELD_VERIFICATION__WORKFLOW_OWNER", "0x00000000000000000000000000000000000000aa"),
    ];
    let (_, out, errors) = printed(false, &[&GOOD[..1], &GOOD[2..], &expect].concat());
    let expected = "\
  id                       7c9e6679-7425-40de-944b-e07fc1f90ae7
  start                    15520
  sinks                    hook
  workflow_owner           0x00000000000000000000000000000000000000aa
  min_required_signatures  4
  valid_signers            10 values
  expect                   name Mint, Burn; service fund
  unsigned                 deliver
  ordering                 available";
    assert_eq!(block(&out, "channel a"), expected, "{out}{errors}");
}

#[test]
fn the_settings_of_a_file_are_shown_with_their_units() {
    let file = [
        ("CHANNELD_CHANNELS__A__SINKS", "hook, file"),
        ("CHANNELD_SINKS__FILE__TYPE", "file"),
        ("CHANNELD_SINKS__FILE__PATH", "/var/lib/channeld/events.jsonl"),
        ("CHANNELD_SINKS__FILE__ROTATE_SIZE", "100MiB"),
        ("CHANNELD_SINKS__FILE__ROTATE_EVERY", "1h"),
        ("CHANNELD_SINKS__FILE__COMPRESS", "zstd"),
        ("CHANNELD_SINKS__FILE__KEEP_FILES", "30"),
        ("CHANNELD_SINKS__FILE__KEEP_SIZE", "1GiB"),
        ("CHANNELD_SINKS__FILE__MODE", "0640"),
    ];
    let variables = [&GOOD[..3], &GOOD[4..], &file].concat();
    let expected = "\
  type           file
  path           /var/lib/channeld/events.jsonl
  mode           0640
  rotation       compress zstd; every 1h; keep_files 30; keep_size 1.0 GiB; name events-{time}.jsonl; size 100.0 MiB
  format         json
  include_proof  no
  filtered       no";
    let (_, out, errors) = printed(false, &variables);
    assert_eq!(block(&out, "sink file"), expected, "{out}{errors}");
    let object: Value = serde_json::from_str(&printed(true, &variables).1).expect("one JSON object");
    let file = &object["sinks"]["file"];
    assert_eq!((&file["mode"], &file["rotation"]["size"]), (&json!("0640"), &json!(104_857_600)));
    assert_eq!((&file["owner"], &file["rotation"]["keep_seconds"]), (&Value::Null, &Value::Null));
}

#[test]
fn the_settings_of_a_webhook_are_shown_without_secrets() {
    let secrets =
        "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY= whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    let more = [
        ("CHANNELD_SINKS__HOOK__SECRET", secrets),
        ("CHANNELD_SINKS__HOOK__HEADERS__TENANT", "value-do-not-show"),
        ("CHANNELD_SINKS__HOOK__BEARER_TOKEN", "token-do-not-show"),
        ("CHANNELD_SINKS__HOOK__PROXY", ""),
        ("CHANNELD_SINKS__HOOK__BATCH_EVENTS", "100"),
        ("CHANNELD_SINKS__HOOK__COMPRESS", "gzip"),
        ("CHANNELD_SINKS__HOOK__RATE_LIMIT", "5/m"),
    ];
    let variables = [&GOOD[..7], &more].concat();
    let (_, out, errors) = printed(false, &variables);
    let expected = "\
  type                webhook
  url                 https://ledger.internal/hooks
  signed              yes
  secrets             v1 1; v1a 1
  headers             authorization, tenant
  compress            gzip
  rate_limit          5/m
  client_certificate  no
  ca_file             no
  proxy               \"\"
  allow_private       yes
  batch_events        100
  batch_bytes         1.0 MiB
  format              json
  include_proof       no
  filtered            no";
    assert_eq!(block(&out, "sink hook"), expected, "{out}{errors}");
    let (_, json, _) = printed(true, &variables);
    let object: Value = serde_json::from_str(&json).expect("one JSON object");
    let hook = &object["sinks"]["hook"];
    assert_eq!((&hook["secrets"], &hook["batch_events"]), (&json!({"v1": 1, "v1a": 1}), &json!(100)));
    assert!(!format!("{out}{json}").contains("do-not-show") && !format!("{out}{json}").contains("whs"), "{out}{json}");
}

#[test]
fn an_invalid_configuration_prints_every_problem() {
    let (code, out, errors) = printed(false, &GOOD[2..]);
    assert_eq!((code, out.as_str()), (false, ""));
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.starts_with("\u{1b}[31mapi.api_key\u{1b}[0m: is missing"), "{errors:?}");

    let (_, out, _) = printed(true, &GOOD[2..]);
    let object: Value = serde_json::from_str(&out).expect("one JSON object");
    assert_eq!(object["problems"][0]["key"], "api.api_key");
}

#[test]
fn the_summary_says_how_many_descriptors_the_configuration_can_need() {
    let needed = |concurrency: &str| {
        let variables = [&GOOD[..], &[("CHANNELD_SINKS__HOOK__CONCURRENCY", concurrency)]].concat();
        let shown: Value = serde_json::from_str(&printed(true, &variables).1).expect("one JSON object");
        let needed = shown["descriptors"].as_u64().expect("a number");
        let (_, out, errors) = printed(false, &variables);
        assert!(out.contains(&format!("files    up to {needed} files and connections")), "{out}{errors}");
        needed
    };
    assert_eq!(needed("16") - needed("1"), 15, "each concurrent request needs a connection");

    assert_eq!(too_few(1_000, 1_024), None);
    let note = too_few(1_025, 1_024).expect("a note");
    assert!(note.contains("1025") && note.contains("LimitNOFILE"), "{note}");
}

#[test]
fn a_limit_of_open_files_below_the_requests_of_the_feed_is_noted() {
    let feed = FeedSettings {
        identity: None,
        channels: Vec::new(),
        consumers: Vec::new(),
        connections: 512,
        connections_per_consumer: 256,
        lease: std::time::Duration::from_secs(30),
    };
    assert_eq!(too_few_for_feed(&feed, 8_448), None);
    let note = too_few_for_feed(&feed, 8_447).expect("a note");
    assert!(note.contains("fewer than 512 requests") && note.contains("to at least 8448"), "{note}");
}
