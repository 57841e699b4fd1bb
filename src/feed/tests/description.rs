//! The description of the calls agrees with their answers.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use strum::VariantArray;

use super::support::{Answer, CLOSED, OPEN, OTHER_TOKEN, TOKEN, TestFeed, served, settings};
use crate::problem::ProblemKind;
use crate::{FeedSettings, openapi};

const CHANNELS: &str = "/v1/channels";

const EVENTS: &str = "/v1/channels/{name}/events";

const STREAM: &str = "/v1/channels/{name}/stream";

const LEASE: &str = "/v1/consumers/{consumer}/{channel}/lease";

const COMMIT: &str = "/v1/consumers/{consumer}/{channel}/commit";

/// Each path with its method.
const CALLS: [(&str, &str); 5] =
    [(CHANNELS, "GET"), (EVENTS, "GET"), (STREAM, "GET"), (LEASE, "POST"), (COMMIT, "POST")];

/// The path of a call about a channel.
fn path_of(call: &str, channel: &str) -> String {
    call.replace("{name}", channel).replace("{channel}", channel).replace("{consumer}", "ledger")
}

/// The description, and the statuses of each path that a test has seen.
struct Checked {
    document: Value,
    seen: BTreeSet<(&'static str, String)>,
}

impl Checked {
    /// Follows a reference to a part of the document.
    fn resolved<'d>(&'d self, part: &'d Value) -> &'d Value {
        match part["$ref"].as_str() {
            Some(reference) => self.document.pointer(reference.trim_start_matches('#')).expect("the part exists"),
            None => part,
        }
    }

    fn operation(&self, path: &str) -> &Value {
        let methods = self.document["paths"][path].as_object().expect("the path is described");
        assert_eq!(methods.len(), 1, "{path}");
        methods.values().next().unwrap()
    }

    fn check(&mut self, path: &'static str, answer: &Answer) {
        let status = answer.status.to_string();
        let response = self.resolved(&self.operation(path)["responses"][&status]);
        assert!(response["description"].is_string(), "{path} does not describe {status}: {answer:?}");
        let described = response["content"].as_object().and_then(|content| content.iter().next());
        let kind = described.map(|(kind, _)| kind.as_str());
        assert_eq!(answer.header("content-type"), kind, "{path} {status}");
        if let Some((_, described)) = described.filter(|(kind, _)| kind.ends_with("json")) {
            self.check_value(&described["schema"], &answer.json(), path);
        }
        self.seen.insert((path, status));
    }

    /// Checks that a value has the type and the required members of a schema, and no members that the schema excludes.
    fn check_value(&self, schema: &Value, value: &Value, place: &str) {
        let schema = self.resolved(schema);
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check_value(part, value, place);
        }
        match schema["type"].as_str() {
            Some("object") => assert!(value.is_object(), "{place}: {value}"),
            Some("array") => assert!(value.is_array(), "{place}: {value}"),
            Some("string") => assert!(value.is_string(), "{place}: {value}"),
            Some("integer") => assert!(value.is_i64(), "{place}: {value}"),
            _ => {}
        }
        if let Some(allowed) = schema["enum"].as_array() {
            assert!(allowed.contains(value), "{place}: {value}");
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(!value[name].is_null(), "{place} has no {name}: {value}");
        }
        let Some(properties) = schema["properties"].as_object() else {
            let items = value.as_array().into_iter().flatten();
            return items.for_each(|item| self.check_value(&schema["items"], item, place));
        };
        for (name, member) in value.as_object().into_iter().flatten() {
            match properties.get(name) {
                Some(schema) => self.check_value(schema, member, &format!("{place}.{name}")),
                None => assert_eq!(schema["additionalProperties"], true, "{place}.{name} is not described"),
            }
        }
    }

    /// Asserts that each described status was seen.
    fn finish(self) {
        let mut described = BTreeSet::new();
        for path in [CHANNELS, EVENTS, STREAM, LEASE, COMMIT] {
            let responses = self.operation(path)["responses"].as_object().unwrap();
            described.extend(responses.keys().map(|status| (path, status.clone())));
        }
        assert_eq!(self.seen, described);
        assert_eq!(self.document["paths"].as_object().unwrap().len(), 5);
    }
}

#[tokio::test]
async fn every_call_answers_as_described() {
    let mut checked = Checked { document: openapi(), seen: BTreeSet::new() };
    served(settings(), async |feed| {
        check_refusals(&mut checked, feed).await;
        check_consumer(&mut checked, feed).await;
        feed.table.delete_through(OPEN, 4);
        for (path, asked) in [
            (CHANNELS, "/v1/channels"),
            (EVENTS, "/v1/channels/open/events"),
            (EVENTS, "/v1/channels/open/events?after=1"),
            (STREAM, "/v1/channels/open/stream?after=1"),
        ] {
            checked.check(path, &feed.get(asked).await);
        }
        checked.check(STREAM, &feed.ask("HEAD", "/v1/channels/open/stream", Some(TOKEN), "").await);
        checked.check(LEASE, &feed.post("/v1/consumers/ledger/open/lease", "").await);
    })
    .await;
    check_limits(&mut checked).await;
    checked.finish();
}

/// Requests that are refused before the table is read.
async fn check_refusals(checked: &mut Checked, feed: &TestFeed) {
    for (path, method) in CALLS {
        let of = |channel: &str| path_of(path, channel);
        checked.check(path, &feed.ask(method, &of("open"), None, "").await);
        checked.check(path, &feed.ask(method, &(of("open") + "?x=1"), Some(TOKEN), "").await);
        if path != CHANNELS {
            checked.check(path, &feed.ask(method, &of("closed"), Some(TOKEN), "").await);
            checked.check(path, &feed.ask(method, &of("missing"), Some(TOKEN), "").await);
        }
    }
    let too_large = "x".repeat(5_000);
    checked.check(COMMIT, &feed.post("/v1/consumers/ledger/open/commit", &too_large).await);
}

/// Requests beyond the limit of a consumer, and beyond the limit of the feed.
async fn check_limits(checked: &mut Checked) {
    let settings = FeedSettings { connections: 2, connections_per_consumer: 1, ..settings() };
    served(settings, async |feed| {
        let mut streams = Vec::new();
        for (token, status) in [(TOKEN, 429), (OTHER_TOKEN, 503)] {
            streams.push(feed.open_stream(token).await);
            feed.until_waiting(streams.len()).await;
            for (path, method) in CALLS {
                let answer = feed.ask(method, &path_of(path, "open"), Some(TOKEN), "").await;
                assert_eq!((answer.status, answer.header("retry-after")), (status, Some("1")), "{path}");
                checked.check(path, &answer);
            }
        }
    })
    .await;
}

/// Leases and commits of a consumer, until its cursor is at position 3 of 5.
async fn check_consumer(checked: &mut Checked, feed: &TestFeed) {
    let (lease, commit) = ("/v1/consumers/ledger/open/lease", "/v1/consumers/ledger/open/commit");
    checked.check(LEASE, &feed.post(lease, "").await);
    feed.table.deliver(OPEN, 3);
    feed.table.deliver(CLOSED, 1);
    let leased = feed.post(lease, "").await;
    checked.check(LEASE, &leased);
    checked.check(LEASE, &feed.post(lease, "").await);
    let body = |lease: &Value| json!({"lease": lease, "through": 3}).to_string();
    checked.check(COMMIT, &feed.post(commit, &body(&json!("unknown"))).await);
    checked.check(COMMIT, &feed.post(commit, &body(&leased.json()["lease"])).await);
    feed.table.deliver(OPEN, 2);
}

#[tokio::test]
async fn the_described_parameters_and_problems_are_those_that_exist() {
    let checked = Checked { document: openapi(), seen: BTreeSet::new() };
    served(settings(), async |feed| {
        for (path, asked) in [
            (CHANNELS, "GET /v1/channels"),
            (EVENTS, "GET /v1/channels/open/events"),
            (STREAM, "GET /v1/channels/open/stream"),
            (LEASE, "POST /v1/consumers/ledger/open/lease"),
            (COMMIT, "POST /v1/consumers/ledger/open/commit"),
        ] {
            let parameters = checked.operation(path)["parameters"].as_array().into_iter().flatten();
            let parameters = parameters.map(|parameter| checked.resolved(parameter));
            let of_query = parameters.filter(|parameter| parameter["in"] == "query");
            let described: Vec<_> = of_query.filter_map(|parameter| parameter["name"].as_str()).collect();
            let described = if described.is_empty() { "none".to_owned() } else { described.join(", ") };
            let (method, asked) = asked.split_once(' ').unwrap();
            let refused = feed.ask(method, &format!("{asked}?x=1"), Some(TOKEN), "").await.json();
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.ends_with(&format!("the known ones are: {described}")), "{path}: {detail}");
        }
    })
    .await;
    let kinds = ProblemKind::VARIANTS.iter().map(|kind| json!(format!("urn:channeld:feed:{}", <&str>::from(*kind))));
    let described = &checked.document["components"]["schemas"]["Problem"]["properties"]["type"]["enum"];
    assert_eq!(*described, kinds.collect::<Value>());
}
