//! Filters, formats and proofs: what a sink is given, and in what shape.

use super::*;
use crate::record::{Field, Filter, Rule};

#[test]
fn what_cannot_be_routed_or_shaped_is_refused_under_its_key() {
    let cases = [
        ("sinks.out", "format", "\"xml\"", "sinks.out.format"),
        ("sinks.out", "include_proof", "\"yes\"", "sinks.out.include_proof"),
        ("sinks.out", "filter", "\"successes\"", "sinks.out.filter"),
        ("sinks.out", "filter", "{ status = [] }", "sinks.out.filter.status"),
        ("sinks.out", "filter", "{ colour = \"red\" }", "sinks.out.filter.colour"),
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
fn lists_of_what_is_expected_that_cannot_match_are_refused() {
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
fn a_raw_file_is_of_one_channel() {
    let file = "type = \"file\"\npath = \"/tmp/events\"\nformat = \"raw\"\nfilter = { verification = \"verified\" }";
    let one = GOOD.replace("type = \"stdout\"", file);
    assert!(load(&one, &[]).is_ok());
    let two = "[channels.b]\nid = \"d290f1ee-6c54-4b01-90e6-d701748f0851\"\nsinks = [\"out\"]\n";
    let error = load(&format!("{one}{two}"), &[]).expect_err("their lines could not be told apart");
    assert_eq!(keys_of(&error), ["sinks.out.format"]);
}

#[test]
fn a_raw_sink_needs_a_filter_on_verification_wherever_the_filter_is() {
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
fn a_filter_is_a_name_or_values_by_field_also_from_the_environment() {
    let config = good(&[("CHANNELD_SINKS__OUT__FILTER", "failures")]);
    assert_eq!(config.sinks["out"].filter, Some(Filter::failures()));
    let config = good(&[("CHANNELD_SINKS__OUT__FILTER__EVENT_NAME", "Mint, Burn")]);
    let rule = Rule::from([(Field::EventName, vec!["Mint".to_owned(), "Burn".to_owned()])]);
    assert_eq!(config.sinks["out"].filter, Some(Filter(vec![rule])));
    let config = good(&[("CHANNELD_CHANNELS__A__FILTERS__HOOK", "failures")]);
    assert_eq!(config.channels[0].filters, [("hook".to_owned(), Filter::failures())].into());
}
