//! Filters, formats and proofs: the events that a sink gets, and the shape of its records.

use super::*;
use ::record::{Confidence, Field, Filter, Rule};

#[test]
fn invalid_filters_and_formats_are_refused_under_their_key() {
    let cases = [
        ("sinks.out", "format", "\"xml\"", "sinks.out.format"),
        ("sinks.out", "include_proof", "\"yes\"", "sinks.out.include_proof"),
        ("sinks.out", "filter", "\"successes\"", "sinks.out.filter"),
        ("sinks.out", "filter", "{ status = [] }", "sinks.out.filter.status"),
        ("sinks.out", "filter", "{ colour = \"red\" }", "sinks.out.filter.colour"),
        ("sinks.out", "filter", "{ min_confidence = \"final\" }", "sinks.out.filter.min_confidence"),
        ("sinks.out", "filter", "{ min_confidence = [] }", "sinks.out.filter.min_confidence"),
        ("channels.a", "filters", "{ out = { min_confidence = \"\" } }", "channels.a.filters.out.min_confidence"),
        ("channels.a", "filters", "{ elsewhere = \"failures\" }", "channels.a.filters.elsewhere"),
        ("channels.a", "filters", "{ out = \"successes\" }", "channels.a.filters.out"),
    ];
    for (table, key, value, wrong) in cases {
        let error = load(&with(table, key, value), &[]).expect_err(value);
        assert_eq!(keys_of(&error), [wrong], "{value}: {error}");
    }
    let raw = with("sinks.out", "format", "\"raw\"")
        .replace("[sinks.out]", "[sinks.out]\ninclude_proof = true\nfilter = { verification = [\"verified\"] }");
    assert_eq!(keys_of(&load(&raw, &[]).expect_err("it is in the event")), ["sinks.out.include_proof"]);
}

#[test]
fn expected_values_that_cannot_match_are_refused() {
    for (value, wrong) in [
        ("{ workflow_id = [\"0x12\"] }", "workflow_id"),
        ("{ workflow_id = [] }", "workflow_id"),
        ("{ address = [\"0x0000000000000000000000000000000000000000\", \"vitalik.eth\"] }", "address"),
        ("{ chain_selector = [\"0x12\"] }", "chain_selector"),
        ("{ service = [\"\"] }", "service"),
        ("{ names = [\"Mint\"] }", "names"),
    ] {
        let error = load(&with("channels.a", "expect", value), &[]).expect_err(value);
        assert_eq!(keys_of(&error), [format!("channels.a.expect.{wrong}")], "{value}: {error}");
    }
    let config = load(&with("channels.a", "expect", "{ chain_selector = [5], name = \"Mint\" }"), &[]).unwrap();
    let lists = config.channels[0].verification.expect.lists().map(|(_, values)| values.to_vec()).collect::<Vec<_>>();
    assert_eq!(lists, [["5"], ["Mint"]]);
}

#[test]
fn a_raw_file_serves_one_channel() {
    let file = "type = \"file\"\npath = \"/tmp/events\"\nformat = \"raw\"\nfilter = { verification = \"verified\" }";
    let one = GOOD.replace("type = \"stdout\"", file);
    assert!(load(&one, &[]).is_ok());
    let two = "[channels.b]\nid = \"d290f1ee-6c54-4b01-90e6-d701748f0851\"\nsinks = [\"out\"]\n";
    let error = load(&format!("{one}{two}"), &[]).expect_err("their lines could not be told apart");
    assert_eq!(keys_of(&error), ["sinks.out.format"]);
}

#[test]
fn a_raw_sink_needs_a_filter_on_verification() {
    let raw = with("sinks.out", "format", "\"raw\"");
    let verified = ("CHANNELD_SINKS__OUT__FILTER__VERIFICATION", "verified");
    let of_channel = ("CHANNELD_CHANNELS__A__FILTERS__OUT__VERIFICATION", "verified,unsigned");
    for told in [verified, of_channel] {
        assert!(load(&raw, &[told]).is_ok(), "{told:?}");
    }
    let replaced = ("CHANNELD_CHANNELS__A__FILTERS__OUT__TYPE", "watcher.event");
    for untold in [&[][..], &[("CHANNELD_SINKS__OUT__FILTER", "failures")], &[verified, replaced]] {
        let error = load(&raw, untold).expect_err("nothing says whether an event was proved");
        assert_eq!(keys_of(&error), ["sinks.out.format"], "{untold:?}");
    }
}

#[test]
fn a_filter_is_a_name_or_a_table_of_values() {
    let config = good(&[("CHANNELD_SINKS__OUT__FILTER", "failures")]);
    assert_eq!(config.sinks["out"].filter, Some(Filter::failures()));
    let config = good(&[("CHANNELD_SINKS__OUT__FILTER__EVENT_NAME", "Mint, Burn")]);
    let rule = Rule::from([(Field::EventName, vec!["Mint".to_owned(), "Burn".to_owned()])]);
    assert_eq!(config.sinks["out"].filter, Some(Filter::any_of(vec![rule])));
    let config = good(&[("CHANNELD_SINKS__OUT__FILTER__MIN_CONFIDENCE", "safe")]);
    assert_eq!(config.sinks["out"].filter, Some(Filter::at_least(Confidence::Safe)));
    let config = good(&[("CHANNELD_CHANNELS__A__FILTERS__OUT__MIN_CONFIDENCE", "finalized")]);
    assert_eq!(config.channels[0].filters, [("out".to_owned(), Filter::at_least(Confidence::Finalized))].into());
    let config = good(&[("CHANNELD_CHANNELS__A__FILTERS__HOOK", "failures")]);
    assert_eq!(config.channels[0].filters, [("hook".to_owned(), Filter::failures())].into());
}

/// A sink with these lines.
fn hook(lines: &str) -> String {
    GOOD.replace("type = \"webhook\"", &format!("type = \"webhook\"\n{lines}"))
}

#[test]
fn an_invalid_template_is_refused_under_its_key() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    let good = file("good", "{\"a\": {{ type }}}");
    let cases = [
        ("format = \"template\"".to_owned(), "sinks.hook.template"),
        ("format = \"template\"\ntemplate = \"irc\"".to_owned(), "sinks.hook.template"),
        ("template = \"slack\"".to_owned(), "sinks.hook.template"),
        ("template_values.a = \"b\"".to_owned(), "sinks.hook.template_values.a"),
        (format!("format = \"template\"\ntemplate = \"slack\"\ntemplate_file = {good:?}"), "sinks.hook.template"),
        ("format = \"template\"\ntemplate_file = \"/nowhere\"".to_owned(), "sinks.hook.template_file"),
        ("format = \"template\"\ntemplate = \"pagerduty\"".to_owned(), "sinks.hook.template"),
        ("format = \"template\"\ntemplate = \"slack\"\nbatch_events = 2".to_owned(), "sinks.hook.batch_events"),
        (
            "format = \"template\"\ntemplate = \"slack\"\ntemplate_values.a-b = \"c\"".to_owned(),
            "sinks.hook.template_values.a-b",
        ),
        (
            format!("format = \"template\"\ntemplate_file = {good:?}\ntemplate_content_type = \"json\""),
            "sinks.hook.template_content_type",
        ),
        (
            format!(
                "format = \"template\"\ntemplate_file = {good:?}\ntemplate_content_type = \"text/plain\"\nbatch_events = 2"
            ),
            "sinks.hook.batch_events",
        ),
        ("format = \"text\"\ninclude_proof = true".to_owned(), "sinks.hook.include_proof"),
    ];
    for (lines, key) in cases {
        let error = load(&hook(&lines), &[]).expect_err(&lines);
        assert_eq!(keys_of(&error), [key], "{lines}: {error}");
    }
    for (text, said) in [
        ("{\"a\": {{ typ }}}", "no value for `typ`"),
        ("{\"a\": \"{{ type }}\"}", "output is not JSON"),
        ("{\"a\": {{ decoded.name }}}", "(in a sample: a verified event whose signed text is no JSON)"),
        ("{{ type", "line 1"),
        ("{{ type|safe }}", "safe"),
    ] {
        let path = file("wrong", text);
        let error = load(&hook(&format!("format = \"template\"\ntemplate_file = {path:?}")), &[]).expect_err(text);
        assert_eq!(keys_of(&error).first().copied(), Some("sinks.hook.template_file"), "{text}: {error}");
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    let routed = "format = \"template\"\ntemplate = \"pagerduty\"\ntemplate_values.routing_key = \"hunter2\"";
    let config = load(&hook(routed), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_template_is_tried_with_the_samples_that_pass_the_filter() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("own");
    fs::write(&path, "{\"amount\": {{ decoded.chain_event.params.amount }}}").expect("a file");
    let own = |filter: &str| hook(&format!("format = \"template\"\ntemplate_file = {path:?}\n{filter}"));
    let verified = ("CHANNELD_SINKS__HOOK__FILTER__EVENT_NAME", "Transfer");
    assert!(load(&own(""), &[verified]).is_ok(), "a contract names what it likes");
    assert!(load(&own(""), &[]).is_err());
    assert!(load(&own("filter = \"failures\""), &[]).is_err());
}

#[test]
fn a_file_sink_refuses_text_and_template_formats() {
    for format in ["text", "template"] {
        let text = GOOD.replace(
            "type = \"stdout\"",
            &format!("type = \"file\"\npath = \"/tmp/events\"\nformat = {format:?}\ntemplate = \"slack\""),
        );
        let text = if format == "text" { text.replace("\ntemplate = \"slack\"", "") } else { text };
        let error = load(&text, &[]).expect_err(format);
        assert_eq!(keys_of(&error), ["sinks.out.format"]);
        assert!(error.to_string().contains("reads the ids of the events from its lines"), "{error}");
    }
}
