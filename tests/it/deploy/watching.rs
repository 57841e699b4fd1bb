//! The metrics that the alert rules and the dashboard use exist, and the alerts fire when they should.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use super::{read, shipped};
use crate::support::{Admin, Prometheus, Receiver, Reply, Setup, programs, run};

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_exactly_when_it_must() {
    if !programs(&["promtool"]) {
        return;
    }
    let promtool = |what: &str, file: &str| {
        let mut command = Command::new("promtool");
        run(command.args(what.split(' ')).arg(shipped(file)));
    };
    promtool("check rules", "prometheus/alerts.yaml");
    promtool("check config", "prometheus/prometheus.yaml");
    promtool("test rules", "prometheus/alerts-test.yaml");
    let tested = read("prometheus/alerts-test.yaml");
    for alert in super::alerts() {
        let fires = format!("alertname=\"{alert}\"");
        assert!(tested.contains(&fires), "no test expects {alert} to fire");
    }
}

/// The daemon has rejected, late and undeliverable events while Prometheus scrapes it, so that every query has a result.
#[tokio::test]
async fn prometheus_answers_every_query_of_dashboard_and_rules() {
    if !programs(&["prometheus"]) {
        return;
    }
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let (blocked, given_up) = (Receiver::start().await, Receiver::start().await);
    blocked.always(Some(Reply::Refuse(404, None)));
    given_up.always(Some(Reply::Refuse(422, None)));
    let setup = Setup::reading(&simulator)
        .with_webhook("blocked", &blocked)
        .with_webhook("given_up", &given_up)
        .with("sinks.given_up.give_up_after", "300ms")
        .with_admin();
    let setup = with_feed(setup);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let prometheus = Prometheus::alerting(&setup, &admin, &shipped("prometheus/alerts.yaml"));
    prometheus.until("up", "1").await;
    for spec in [PROVED, PROVED, EventSpec::Forged(Tampering::Strangers), EventSpec::Late(Kind::QueryCompleted), PROVED]
    {
        simulator.publish_one(0, spec);
    }
    // The feed reports the lag of a consumer that has a cursor. The table exists after the first delivery.
    prometheus
        .until_some("channeld_lane_processed_offset{sink=\"table\"} > 0", |values| values.first().map(drop))
        .await;
    let set = setup.tell(&["consumers", "set", "ledger", "c0", "0", "--yes"]).await;
    assert_eq!(set.code, Some(0), "{set:?}");

    let dashboard: Value = serde_json::from_str(&read("grafana/dashboard.json")).unwrap();
    let variables = variables(&dashboard, &prometheus).await;
    assert_eq!(variables["sink"], "blocked|file|given_up|table");
    let shown = queries(&dashboard["panels"]);
    assert!(shown.len() > 30, "{shown:?}");
    for query in shown {
        let asked = replaced(&query, &variables);
        let number = |value: &String| value.parse::<f64>().is_ok_and(f64::is_finite);
        prometheus.until_some(&asked, |values| values.iter().any(number).then_some(())).await;
    }
    // Annotations mark occurrences, so an empty result is allowed.
    for query in queries(&dashboard["annotations"]) {
        prometheus.until_some(&replaced(&query, &variables), |_| Some(())).await;
    }

    let spoken = prometheus.until_data("/rules", &[], all_evaluated).await;
    for alert in ["ChanneldEventsRejected", "ChanneldUnknownSigner", "ChanneldDeadLetters"] {
        assert_eq!(spoken[alert], "firing", "{spoken:?}");
    }
    for alert in ["ChanneldSinkBlocked", "ChanneldNotReady", "ChanneldStalled"] {
        assert_eq!(spoken[alert], "pending", "{spoken:?}");
    }
    for alert in
        ["ChanneldDown", "ChanneldHung", "ChanneldNotReading", "ChanneldQuarantineFull", "ChanneldConsumerStalled"]
    {
        assert_eq!(spoken[alert], "inactive", "{spoken:?}");
    }
    daemon.stop().await;
}

/// Adds a feed with a consumer, so that its metrics exist.
fn with_feed(setup: Setup) -> Setup {
    let (table, socket) = (setup.path("events.db"), setup.path("feed.sock"));
    setup
        .with("sinks.table.type", "sqlite")
        .with("sinks.table.path", table.display().to_string())
        .with("channels.c0.sinks", vec!["file", "blocked", "given_up", "table"])
        .with("feed.listen", format!("unix:{}", socket.display()))
        .with("feed.sink", "table")
        .with("feed.consumers.ledger.channels", vec!["c0"])
}

/// The state of each alert. `None` until every rule was evaluated, and until two alerts have reached their expected states.
/// Panics if the evaluation of a rule has failed.
fn all_evaluated(told: &Value) -> Option<BTreeMap<String, String>> {
    let rules = told["groups"][0]["rules"].as_array()?;
    let of = |rule: &Value, member: &str| rule[member].as_str().unwrap_or_default().to_owned();
    for rule in rules {
        assert_ne!(rule["health"], "err", "{rule}");
    }
    let all = rules.iter().all(|rule| rule["health"] == "ok");
    let states: BTreeMap<_, _> = rules.iter().map(|rule| (of(rule, "name"), of(rule, "state"))).collect();
    assert_eq!(states.keys().cloned().collect::<BTreeSet<_>>(), super::alerts().into_iter().collect());
    // A rule is evaluated later than the same query of the dashboard.
    (all && states["ChanneldDeadLetters"] == "firing" && states["ChanneldStalled"] == "pending").then_some(states)
}

/// All queries in a part of the dashboard.
fn queries(part: &Value) -> Vec<String> {
    match part {
        Value::Array(parts) => parts.iter().flat_map(queries).collect(),
        Value::Object(members) => {
            let own = members.get("expr").and_then(Value::as_str).map(str::to_owned);
            own.into_iter().chain(members.values().flat_map(queries)).collect()
        }
        _ => Vec::new(),
    }
}

/// The values of the dashboard's variables, as Grafana inserts them into a query if everything is selected.
async fn variables(dashboard: &Value, prometheus: &Prometheus) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([("__rate_interval", "1m"), ("__interval", "15s")].map(owned));
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["query"]["query"].as_str() else { continue };
        let query = replaced(query, &variables);
        let (selector, label) =
            query.strip_prefix("label_values(").unwrap().trim_end_matches(')').rsplit_once(", ").unwrap();
        let some = |told: &Value| {
            let values: Option<Vec<_>> = told.as_array()?.iter().map(Value::as_str).collect();
            values.filter(|values| !values.is_empty()).map(|values| values.join("|"))
        };
        let values = prometheus.until_data(&format!("/label/{label}/values"), &[("match[]", selector)], some).await;
        variables.insert(variable["name"].as_str().unwrap().to_owned(), values);
    }
    variables
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn replaced(query: &str, variables: &BTreeMap<String, String>) -> String {
    let replaced =
        variables.iter().fold(query.to_owned(), |query, (name, value)| query.replace(&format!("${name}"), value));
    assert!(!replaced.contains('$'), "{replaced}");
    replaced
}

#[test]
fn dashboard_panels_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&read("grafana/dashboard.json")).unwrap();
    let mut taken = BTreeMap::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = |member: &str| panel["gridPos"][member].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for (x, y) in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            let other = taken.insert((place("x") + x, place("y") + y), &panel["title"]);
            assert_eq!(other, None, "{} overlaps another panel", panel["title"]);
        }
    }
    let ids: BTreeSet<_> = dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), dashboard["panels"].as_array().unwrap().len());
}
