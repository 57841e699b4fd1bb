//! Promises about the parts that a build can leave out.

use super::*;
use ::ledger::store::HAS_POSTGRES;
use ::sink::is_built_in;
use telemetry::trace::HAS_OTLP;

const SINKS: [(&str, &str); 4] = [
    ("kafka", "brokers = ['kafka-1:9092']"),
    ("nats", "url = 'nats://nats-1:4222'"),
    ("postgres", "url = 'postgresql://channeld@db.internal/channeld'"),
    ("sqlite", "path = '/var/lib/channeld/events.db'"),
];

/// If the part is built in, checks that the text is a valid configuration. Otherwise, checks that this key is the only
/// problem.
fn check(text: &str, is_there: bool, key: &str, feature: &str) {
    match load(text, &[]) {
        Ok(_) => assert!(is_there, "{key} is taken without the feature {feature}"),
        Err(error) => {
            assert!(!is_there, "{error}");
            assert_eq!(keys_of(&error), [key], "{error}");
            let build = format!("`cargo build --release --features {feature}`");
            assert!(error.to_string().contains(&build), "{error}");
        }
    }
}

#[test]
fn a_sink_that_was_not_built_in_is_refused_with_remedy() {
    for (kind, keys) in SINKS {
        let text = format!("{GOOD}\n[sinks.other]\ntype = '{kind}'\n{keys}\n");
        check(&text, is_built_in(kind), "sinks.other.type", kind);
    }
}

#[test]
fn a_state_or_collector_that_was_not_built_in_is_refused_with_remedy() {
    let state = "[state]\nbackend = 'postgres'\nurl = 'postgresql://channeld@db.internal/channeld'\n";
    let text = format!("{}\n{state}", GOOD.replace("type = \"stdout\"", "type = \"stdout\"\nper_instance = true"));
    check(&text, HAS_POSTGRES, "state.backend", "postgres");
    let text = format!("{GOOD}\n[log]\notlp_endpoint = 'https://collector.internal:4318'\n");
    check(&text, HAS_OTLP, "log.otlp_endpoint", "otlp");
}
