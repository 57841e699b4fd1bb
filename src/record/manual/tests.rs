use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::line::{self, Verification};
use crate::testing::{channel, proved};
use crate::{Format, JSON, Message, Shape, Source, Template};
use proof::event::Event;
use proof::verify::{Address, Hash, Proof};

/// Members whose contents are defined by others.
const OPAQUE: [&str; 2] = ["decoded", "event"];

/// Collects the path of each member of an object, including nested objects.
fn paths(value: &Value, before: &str, into: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{before}{name}");
        if !OPAQUE.contains(&&*path) {
            paths(value, &format!("{path}."), into);
        }
        into.insert(path);
    }
}

fn paths_of(json: &[u8]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    paths(&serde_json::from_slice(json).unwrap(), "", &mut found);
    found
}

/// Returns the terms of a section.
fn documented(section: &str) -> BTreeSet<String> {
    let section = MANUAL.split("\n.SH ").find(|text| text.starts_with(section)).expect("it is there");
    let terms = section.split("\n.TP\n.B ").skip(1);
    terms.map(|term| term.lines().next().unwrap().to_owned()).collect()
}

/// Renders a record with every possible field, which is more than any real event has.
fn every_field() -> Vec<u8> {
    let hash = Hash([7; 32]);
    let proof = Proof {
        digest: hash,
        signers: vec![Address([8; 20])],
        required: 1,
        strangers: 0,
        event_hash: hash,
        workflow_owner: Address([9; 20]),
        workflow_id: hash,
        execution_id: hash,
    };
    let verification =
        Verification { reason: Some("reason"), proof: Some(&proof), ..Verification::status(line::VERIFIED) };
    let signed = r#"{"chain_selector":"16015286601757825753","chain_event":{"confidence":"finalized"}}"#;
    let record = proved(r#""timestamp":1715688015"#, signed);
    let event = Event::parse(record.event()).unwrap();
    let mut json = Vec::new();
    line::render(&mut json, &channel(), &event.raw, Some(&event), Some("received"), &verification);
    json
}

fn shaped(format: Format) -> Message {
    let signed = r#"{"chain_selector":"16015286601757825753","chain_event":{"confidence":"finalized"}}"#;
    let record = proved(r#""timestamp":1715688015,"watcher_id":"W""#, signed);
    Message::new(&Arc::new(record), &Shape { format, include_proof: true, ..Shape::default() })
}

#[test]
fn every_written_field_is_documented_and_no_other() {
    let mut written = paths_of(&every_field());
    written.extend(paths_of(shaped(Format::Json).body()));
    assert_eq!(documented("FIELDS"), written);
}

#[test]
fn the_documented_coverage_matches_the_code() {
    let json: Value = serde_json::from_slice(&every_field()).unwrap();
    assert_eq!(json["verification"]["covers"], json!(["decoded"]));
    let paragraph = MANUAL.split("\n.TP\n").find(|text| text.starts_with(".B decoded\n")).unwrap();
    assert!(paragraph.contains(" Signed. "), "{paragraph}");
}

#[test]
fn every_format_is_described_with_its_members() {
    let formats: BTreeSet<_> = documented("\"OTHER FORMATS\"");
    let all = <Format as strum::VariantNames>::VARIANTS.iter().filter(|name| **name != "json");
    assert_eq!(formats, all.map(|name| (*name).to_owned()).collect());
    let Value::Object(event) = serde_json::from_slice(shaped(Format::CloudEvents).body()).unwrap() else {
        panic!("an object")
    };
    for name in event.keys() {
        assert!(MANUAL.contains(&format!("\\fB{name}\\fR")), "{name}");
    }
}

#[test]
fn the_example_is_a_complete_record_without_proof() {
    let mut delivered = paths_of(&every_field());
    delivered.remove("verification.reason");
    assert_eq!(paths_of(EXAMPLE.as_bytes()), delivered);
}

#[test]
fn the_documented_template_renders_json_for_each_sample() {
    let (_, after) = MANUAL.split_once(".IP\n.nf\n").unwrap();
    let (shown, _) = after.split_once(".fi\n").unwrap();
    let template = Template::new(Source::Own(shown.into()), JSON, BTreeMap::new()).unwrap();
    assert_eq!(template.try_samples(false, |_| true), Vec::<String>::new());
}

/// Removes the markup of manual pages.
fn plain(text: &str) -> String {
    let line = |line: &str| match line.split_once(' ') {
        Some((".B", rest)) => rest.to_owned(),
        // roff prints these parts without a space between them.
        Some((".BR", rest)) => rest.replace(' ', ""),
        _ => line.to_owned(),
    };
    let text = text.lines().map(line).collect::<Vec<_>>().join(" ");
    text.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-")
}

/// Collects the schema of each property, including nested properties, by its path.
fn properties(schema: &Value, before: &str, into: &mut BTreeMap<String, Value>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        properties(property, &format!("{before}{name}."), into);
        into.insert(format!("{before}{name}"), property.clone());
    }
}

#[test]
fn the_schema_describes_each_field_in_the_words_of_the_manual() {
    let section = MANUAL.split("\n.SH ").find(|text| text.starts_with("FIELDS")).unwrap();
    let paragraphs = section.split("\n.TP\n.B ").skip(1).map(|paragraph| paragraph.split_once('\n').unwrap());
    let documented: BTreeMap<_, _> = paragraphs.map(|(term, text)| (term.to_owned(), plain(text))).collect();
    let mut described = BTreeMap::new();
    properties(&schema(), "", &mut described);
    let described =
        described.into_iter().map(|(path, field)| (path, field["description"].as_str().unwrap().to_owned()));
    assert_eq!(described.collect::<BTreeMap<_, _>>(), documented);
}

#[test]
fn every_field_has_a_type_and_optional_fields_are_not_required() {
    let schema = schema();
    assert_eq!(schema["required"], json!(["channel", "channel_id", "offset", "event_id", "verification", "event"]));
    assert_eq!(schema["properties"]["verification"]["required"], json!(["status", "covers"]));
    assert_eq!(schema["properties"]["proof"]["required"], json!(["report", "context", "signatures"]));
    assert_eq!(schema["properties"]["event_id"]["type"], json!(["string", "null"]));
    let mut fields = BTreeMap::new();
    properties(&schema, "", &mut fields);
    for (path, field) in fields.iter().filter(|(path, _)| *path != "decoded") {
        assert!(!field["type"].is_null(), "{path} has no type");
    }
}
