use std::sync::Arc;

use serde_json::{Value as Json, json};
use strum::VariantArray;

use super::*;
use crate::testing::{notice, proved};
use crate::{Format, Message, Shape};

const KEY: &str = "a-key-that-never-shows";

fn values() -> BTreeMap<String, Secret> {
    [("routing_key".to_owned(), Secret::new(KEY))].into()
}

fn template(text: &str) -> Template {
    compiled(text, JSON).unwrap()
}

fn compiled(text: &str, content_type: &str) -> Result<Template, String> {
    Template::new(Source::Own(text.into()), content_type, values())
}

fn shipped(target: BuiltInTarget) -> Template {
    Template::new(Source::Shipped(target), JSON, values()).unwrap()
}

fn rendered(template: &Template, record: &Record) -> Result<String, String> {
    template.render(record, &record.json, Origin::Event).map(|body| String::from_utf8(body.to_vec()).unwrap())
}

fn json(template: &Template, record: &Record) -> Json {
    serde_json::from_str(&rendered(template, record).unwrap()).unwrap()
}

fn failed() -> Record {
    let payload = r#"{"operation_id":"0b8e4c36-21ad-4c0e-9d8e-6a3a5c9b7f10","status":"failed","timestamp":1715688015,
                      "status_reason":"out of gas","chain_selector":"5","address":"0xaa"}"#;
    notice("operation.status", payload)
}

/// Events in which every text is hostile.
fn hostile() -> Vec<Record> {
    let text = "\\\" }, {{ 7 * 7 }} {% raw %} <!channel> @everyone [x](http://e.vil) `*_~|&<>\\\\ \\u0000\\u001b[31m\\n\\u202e";
    let texts = [
        format!("{text}{}", "x".repeat(100_000)),
        format!("{}{text}", "\\ud83d\\ude00".repeat(50_000)),
        "\\\"".repeat(100),
    ];
    let payload = |text: &str| {
        format!(
            r#"{{"operation_id":"{text}","watcher_id":"{text}","wallet_id":"{text}","status":"{text}","service":"{text}",
                 "status_reason":"{text}","chain_selector":"{text}","address":"{text}"}}"#
        )
    };
    let mut records = Vec::new();
    for text in &texts {
        for kind in ["wallet.status", "watcher.status", "new"] {
            records.push(notice(kind, &payload(text)));
            records.push(notice(
                kind,
                &payload(text).replacen(&format!(r#""status":"{text}""#), r#""status":"failed""#, 1),
            ));
            records.push(notice(
                kind,
                &payload(text).replacen(&format!(r#""status":"{text}""#), r#""status":"archived""#, 1),
            ));
        }
        records.push(proved(
            r#""watcher_id":"W""#,
            &format!(r#"{{"name":"{text}","service":"{text}","{text}":[1e999,"{text}"]}}"#),
        ));
    }
    records
}

/// Collects every string in a JSON value, with its path.
fn texts(value: &Json, path: &str, found: &mut Vec<(String, String)>) {
    match value {
        Json::String(text) => found.push((path.to_owned(), text.clone())),
        Json::Array(items) => items.iter().for_each(|item| texts(item, path, found)),
        Json::Object(members) => {
            members.iter().for_each(|(name, value)| texts(value, &format!("{path}.{name}"), found));
        }
        _ => {}
    }
}

#[test]
fn each_shipped_template_renders_json_for_each_sample() {
    for target in BuiltInTarget::VARIANTS {
        let template = shipped(*target);
        assert_eq!(template.try_samples(false, |_| true), Vec::<String>::new(), "{target:?}");
        for (name, record) in samples::all() {
            assert!(json(&template, &record).is_object(), "{target:?} {name}");
        }
    }
}

#[test]
fn each_shipped_template_obeys_its_targets_limits() {
    for target in BuiltInTarget::VARIANTS {
        for record in hostile() {
            let body = rendered(&shipped(*target), &record).unwrap();
            let (mut found, json) = (Vec::new(), serde_json::from_str(&body).unwrap());
            texts(&json, "", &mut found);
            let total: usize = found.iter().map(|(_, text)| text.encode_utf16().count()).sum();
            for (path, text) in &found {
                // A plain text field, which Slack does not parse as markup.
                let is_header = path == ".blocks.text.text" && json["blocks"][0]["text"]["text"] == text.as_str();
                let limit = match (target, path.as_str()) {
                    (BuiltInTarget::Slack, ".blocks.text.text") if is_header => 150,
                    (BuiltInTarget::Slack, ".blocks.text.text") => 3_000,
                    (BuiltInTarget::Slack, ".blocks.fields.text") => 2_000,
                    (BuiltInTarget::Slack, _) => 4_000,
                    (BuiltInTarget::Teams, _) => 1_000,
                    (BuiltInTarget::Discord, ".embeds.title" | ".embeds.fields.name") => 256,
                    (BuiltInTarget::Discord, ".embeds.description") => 4_096,
                    (BuiltInTarget::PagerDuty, ".dedup_key") => 255,
                    (BuiltInTarget::Discord | BuiltInTarget::PagerDuty, _) => 1_024,
                    (BuiltInTarget::Opsgenie, ".message") => 130,
                    (BuiltInTarget::Opsgenie, ".alias" | ".entity") => 512,
                    (BuiltInTarget::Opsgenie, ".tags") => 50,
                    (BuiltInTarget::Opsgenie, _) => 15_000,
                };
                assert!(!text.is_empty() && text.encode_utf16().count() <= limit, "{target:?} {path}: {}", text.len());
                // The text must not notify anyone, contain a link, or change the text direction.
                let is_markup = target == &BuiltInTarget::Slack && text.contains('<') && !is_header
                    || target == &BuiltInTarget::Discord && text.contains("](");
                assert!(!is_markup && !text.contains('\u{202e}'), "{target:?} {path}: {text}");
            }
            match target {
                BuiltInTarget::Teams => assert!(body.len() < 28_000, "{}", body.len()),
                BuiltInTarget::Discord => assert!(total < 6_000, "{total}"),
                BuiltInTarget::Slack => assert!(
                    json["blocks"].as_array().unwrap().last().unwrap()["fields"].as_array().unwrap().len() <= 10
                ),
                BuiltInTarget::Opsgenie => assert!(json["details"].to_string().len() < 8_000 * 3),
                BuiltInTarget::PagerDuty => assert!(body.len() < 512_000),
            }
        }
    }
}

#[test]
fn a_failure_opens_an_alert_and_a_success_closes_it() {
    let confirmed =
        notice("operation.status", r#"{"operation_id":"0b8e4c36-21ad-4c0e-9d8e-6a3a5c9b7f10","status":"confirmed"}"#);
    let pagerduty = shipped(BuiltInTarget::PagerDuty);
    let (opened, closed) = (json(&pagerduty, &failed()), json(&pagerduty, &confirmed));
    assert_eq!((&opened["event_action"], &closed["event_action"]), (&json!("trigger"), &json!("resolve")));
    let key = "channeld:00000000-0000-0000-0000-000000000001:operation:0b8e4c36-21ad-4c0e-9d8e-6a3a5c9b7f10";
    assert_eq!((&opened["dedup_key"], &closed["dedup_key"]), (&json!(key), &json!(key)));
    assert_eq!(opened["payload"]["summary"], "operation failed in c: out of gas");
    assert_eq!(
        (&opened["payload"]["severity"], &opened["payload"]["timestamp"]),
        (&json!("error"), &json!("2024-05-14T12:00:15Z"))
    );
    assert_eq!(opened["routing_key"], KEY);

    let opsgenie = shipped(BuiltInTarget::Opsgenie);
    assert_eq!(json(&opsgenie, &failed())["alias"], key);
    let message = |record| {
        let shape = Shape {
            format: Format::Template,
            include_proof: false,
            template: Some(Arc::new(shipped(BuiltInTarget::Opsgenie))),
        };
        Message::new(&Arc::new(record), &shape)
    };
    assert_eq!(message(failed()).below(), None);
    let expected = UrlSuffix { path: vec![key.to_owned(), "close".to_owned()], query: ("identifierType", "alias") };
    assert_eq!(message(confirmed).below(), Some(expected));
}

#[test]
fn watcher_events_do_not_affect_alerts_about_the_watcher() {
    let of = |record: &Record| Alert::of(record);
    let seen = of(&proved(r#""watcher_id":"W""#, r#"{"name":"Transfer"}"#));
    let failed = of(&notice("watcher.status", r#"{"watcher_id":"W","status":"failed"}"#));
    assert_ne!(seen.key, failed.key);
    assert_eq!((seen.severity, seen.resolves, failed.severity), ("info", false, "critical"));
}

#[test]
fn a_reverted_operation_alerts_like_a_failed_one() {
    let of = |status: &str| {
        let payload = format!(r#"{{"operation_id":"0b8e4c36-21ad-4c0e-9d8e-6a3a5c9b7f10","status":"{status}"}}"#);
        Alert::of(&notice("operation.status", &payload))
    };
    let (failed, reverted) = (of("failed"), of("reverted"));
    assert_eq!((reverted.severity, reverted.resolves), ("error", false));
    assert_eq!((failed.severity, &failed.key), (reverted.severity, &reverted.key));
}

#[test]
fn an_undefined_name_is_an_error_with_its_location() {
    for (text, said) in [
        ("{\"a\": {{ colour }}}", "line 1: no value for `colour`"),
        ("{\n\"a\": {{ decoded.name }}}", "line 2: no value for `decoded"),
        ("{\"a\": {{ verification.colour }}}", "no value for `verification.colour`"),
        ("{% if colour %}1{% endif %}", "no value for"),
        ("{{ values.colour }}", "no value for `values.colour`"),
    ] {
        let error = rendered(&template(text), &failed()).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
    for (text, said) in
        [("{{ type|safe }}", "safe"), ("{{ type|colour }}", "colour"), ("{{ type", "line 1"), ("{% for %}", "line 1")]
    {
        let error = compiled(text, JSON).map(|template| rendered(&template, &failed()).map(|_| ()).unwrap_err());
        let error = error.unwrap_or_else(|error| error);
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn output_that_is_not_json_is_an_error() {
    for text in
        ["{\"a\": \"{{ type }}\"}", "{\"a\": 1,}", "", "{% if event_id %}{}{% endif %}{}", "{\"a\": tru{{ offset }}}"]
    {
        let error = rendered(&template(text), &failed()).unwrap_err();
        assert!(error.starts_with("the template's output is not JSON"), "{text}: {error}");
    }
    let unescaped = template("{% autoescape false %}{\"a\": \"{{ event.payload.status_reason }}\"}{% endautoescape %}");
    assert_eq!(json(&unescaped, &failed()), json!({"a": "out of gas"}));
    for record in hostile() {
        // If an operator turns escaping off and this would change the body, rendering fails. It does not produce a
        // different body.
        assert!(rendered(&unescaped, &record).is_err());
    }
    assert!(!unescaped.try_samples(false, |_| true).is_empty());
}

#[test]
fn no_template_error_contains_values() {
    for text in [
        "{{ values.routing_key|int }}",
        "{{ values.routing_key|colour }}",
        "{{ values.routing_key + 1 }}",
        "{{ {}[values.routing_key] }}",
        "{{ event.payload.status_reason|int }}",
        "{{ event.payload.status_reason + 1 }}",
        "{{ event.payload.status_reason() }}",
        "{{ values.routing_key.colour }}",
        "{{ range(99999999)|list }}",
    ] {
        let error = compiled(text, JSON).and_then(|template| rendered(&template, &failed())).unwrap_err();
        assert!(!error.contains(KEY) && !error.contains("out of gas"), "{text}: {error}");
    }
    assert!(!format!("{:?}", template("{}")).contains(KEY));
}

#[test]
fn a_template_is_bounded_in_time_and_size() {
    let endless = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}{}";
    assert!(rendered(&template(endless), &failed()).unwrap_err().contains("more than 1000000 steps"));
    let large = format!("{{% for a in range(9000) %}}{}{{% endfor %}}", "x".repeat(1_000));
    assert!(rendered(&compiled(&large, "text/plain").unwrap(), &failed()).unwrap_err().contains("more than 8 MiB"));
}

#[test]
fn numbers_stay_exact_and_members_ordered() {
    let numbers =
        "[340282366920938463463374607431768211455,-170141183460469231731687303715884105728,1.5,18446744073709551616]";
    let record = proved(r#""watcher_id":"W""#, &format!(r#"{{"z":{numbers},"a":1,"m":null}}"#));
    let all = template("{{ decoded }}");
    let expected = format!(r#"{{"z":{numbers},"a":1,"m":null}}"#);
    assert_eq!(rendered(&all, &record).unwrap(), expected);
    let beyond = notice("new", r#"{"n":[1.50,1e400,99999999999999999999999999999999999999999]}"#);
    let expected = r#"["1.50","1e400","99999999999999999999999999999999999999999"]"#;
    assert_eq!(rendered(&template("{{ event.payload.n }}"), &beyond).unwrap(), expected);
}

#[test]
fn events_cannot_inject_lines_or_markup_into_a_body() {
    let pretty = template("{\n  \"a b\": [ {{ offset }},\n 2 ]\n}\n");
    assert_eq!(rendered(&pretty, &failed()).unwrap(), r#"{"a b":[5,2]}"#);
    let line = "type {{ type }}\nreason {{ event.payload.status_reason }}";
    for record in hostile() {
        let made = rendered(&compiled(line, "text/plain").unwrap(), &record);
        let Ok(made) = made else { continue };
        assert_eq!(made.lines().count(), 2, "{made}");
        let made = rendered(&compiled(line, "application/xml").unwrap(), &record).unwrap();
        assert!(!made.contains(['<', '"', '\u{1b}']), "{made}");
    }
}

#[test]
fn samples_cover_the_contract_and_respect_the_filter() {
    let own = template("{\"amount\": {{ decoded.chain_event.params.amount_that_only_we_know }}}");
    let verified = |facts: &Facts| facts.get(crate::Field::EventName) == Some("Transfer");
    assert_eq!(own.try_samples(false, verified), Vec::<String>::new());
    let all = own.try_samples(false, |_| true);
    assert!(all[0].ends_with("(in a sample: a verified event whose signed text is no JSON)"), "{all:?}");
    // Many samples lack the same value, but the mistake is reported once.
    assert_eq!(all.len(), 2, "{all:?}");
    let misspelt = template("{\"a\": {{ decoded.chain_event.adress }}}");
    assert_eq!(misspelt.try_samples(false, verified).len(), 1);
}

#[test]
fn templates_are_equal_only_if_text_values_and_media_type_are() {
    assert_eq!(template("{}"), template("{}"));
    assert_ne!(template("{}"), template("[]"));
    assert_ne!(template("{}"), compiled("{}", "text/plain").unwrap());
    assert_ne!(template("{}"), Template::new(Source::Own("{}".into()), JSON, BTreeMap::new()).unwrap());
}
