//! Operators see the consumers of the feed in the metrics, the status and the operator API, and set their cursors.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use simulator::{Options, Simulator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{FeedClient, FeedEvent, Served, assert_positions, assert_problem, with_each_table};
use crate::support::{Admin, Answered, Daemon, LONGEST_WAIT, Setup, value};

const LEASE: &str = "/consumers/ledger/c0/lease?limit=";
const COMMIT: &str = "/consumers/ledger/c0/commit";
const LAG: &str = r#"channeld_feed_consumer_lag{channel="c0",consumer="ledger"}"#;
const GONE: &str = r#"channeld_feed_consumer_gone{channel="c0",consumer="ledger"}"#;

with_each_table![
    the_lag_of_a_consumer_is_visible_and_an_operator_sets_its_cursor,
    a_consumer_whose_next_event_was_deleted_is_visible,
];

/// Sends a request to the control socket. Returns the status and the JSON of the answer.
async fn ask_socket(setup: &Setup, method: Method, path: &str, body: &str) -> (u16, Value) {
    let exchange = async {
        let mut client = UnixStream::connect(setup.path("state/control.sock")).await.unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: channeld\r\nConnection: close\r\n");
        let content = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        client.write_all((head + &content).as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(LONGEST_WAIT, exchange).await.expect("the daemon answers");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

/// The consumer in the answer to `GET /consumers`.
async fn consumer(setup: &Setup) -> Value {
    let (status, answer) = ask_socket(setup, Method::GET, "/consumers", "").await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["consumers"].as_array().map(Vec::len), Some(1), "{answer}");
    answer["consumers"][0].clone()
}

/// Leases events, and returns the lease with their positions.
async fn lease(client: &FeedClient, limit: usize) -> (String, Vec<FeedEvent>) {
    let leased = client.post(&format!("{LEASE}{limit}"), &Value::Null).await.json();
    (leased["lease"].as_str().unwrap().to_owned(), FeedEvent::all(&leased["events"]))
}

async fn commit(client: &FeedClient, lease: &str, through: i64) {
    let committed = client.post(COMMIT, &json!({"lease": lease, "through": through})).await;
    assert_eq!(committed.status, StatusCode::NO_CONTENT);
}

/// Waits until a sample has this value. The status makes the daemon read the consumers.
async fn until(setup: &Setup, daemon: &mut Daemon, admin: &Admin, sample: &str, expected: f64) -> String {
    assert_eq!(setup.tell(&["status"]).await.code, Some(0));
    let holds = |answer: &Answered| value(&answer.text, sample) == Some(expected);
    admin.until(daemon, "/metrics", &format!("{sample} {expected}"), holds).await.text
}

async fn the_lag_of_a_consumer_is_visible_and_an_operator_sets_its_cursor(kind: &str) {
    let options = Options { events: 20, ..Options::default() };
    let Some(mut served) = Served::by(kind, options).await else { return };
    served.setup.set("admin.listen", "127.0.0.1:0");
    let mut daemon = served.setup.start();
    let (admin, client) = (Admin::of(&mut daemon).await, FeedClient::of(&mut daemon).await);
    let setup = &served.setup;
    client.until(&mut daemon, "c0", 20).await;
    let (first, _) = lease(&client, 5).await;
    assert!(consumer(setup).await["leased_until"].is_string());
    commit(&client, &first, 5).await;

    let shown = consumer(setup).await;
    let since: Timestamp = shown["waiting_since"].as_str().unwrap().parse().unwrap();
    let age = Timestamp::now().duration_since(since).as_secs();
    assert!((0..=60).contains(&age), "{shown}");
    let channel_id = served.simulator.announcement().channels[0].to_string();
    let expected = json!({
        "consumer": "ledger", "channel": "c0", "channel_id": channel_id, "has_cursor": true, "through": 5, "newest": 20, "oldest": 1,
        "lag": 15, "waiting_since": shown["waiting_since"], "leased_until": null, "gone": false,
    });
    assert_eq!(shown, expected);
    assert_eq!(setup.tell(&["consumers", "show", "--json"]).await.json(), std::slice::from_ref(&expected));
    let table = String::from_utf8(setup.tell(&["consumers", "show"]).await.out).unwrap();
    assert!(table.starts_with("CONSUMER ") && table.contains("\nledger ") && !table.contains('\u{1b}'), "{table}");
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    let feed = &status["feed"];
    assert_eq!((&feed["consumers"], &feed["waiting"]), (&json!([expected]), &json!(0)), "{feed}");
    assert!(client.base_url.contains(feed["address"].as_str().unwrap()), "{feed}");
    assert!(feed["read"].is_string() && feed.get("error").is_none(), "{feed}");
    let scrape = until(setup, &mut daemon, &admin, LAG, 15.0).await;
    let age = value(&scrape, r#"channeld_feed_consumer_age_seconds{channel="c0",consumer="ledger"}"#).unwrap();
    assert!((0.0..=60.0).contains(&age), "{age}");
    let commits = r#"channeld_feed_requests_total{call="commit",status="204"}"#;
    assert_eq!(value(&scrape, commits), Some(1.0), "{scrape}");

    // Without --yes, the command only shows the effect.
    let set = ["consumers", "set", "ledger", "c0", "15"];
    let asked = setup.tell(&set).await;
    assert_eq!(asked.code, Some(64), "{asked:?}");
    let effect = String::from_utf8(asked.out).unwrap();
    assert_eq!(effect, "ledger c0: from 5 to 15: 10 events would be skipped\n");
    let asked = setup.tell(&[&set[..], &["--json"]].concat()).await;
    let effect: Value = serde_json::from_slice(&asked.out).unwrap();
    assert_eq!((asked.code, &effect["changed"]), (Some(64), &json!(false)), "{asked:?}");
    for impossible in ["-1", "21"] {
        let refused = setup.tell(&["consumers", "set", "ledger", "c0", impossible]).await;
        assert!(refused.code == Some(64) && refused.out.is_empty(), "{refused:?}");
        assert!(refused.errors.contains("the position must be between 0"), "{refused:?}");
    }
    assert_eq!(consumer(setup).await["through"], 5);
    let done = setup.tell(&[&set[..], &["--yes", "--json"]].concat()).await;
    assert_eq!(done.json(), [json!({"consumer": "ledger", "channel": "c0", "from": 5, "to": 15, "changed": true})]);
    daemon.until_logged("cursor of a consumer set by an operator").await;
    let log = daemon.log();
    let logged = &log.lines("cursor of a consumer set by an operator")[0];
    let fields = ["consumer", "channel", "from", "to"].map(|field| logged[field].clone());
    assert_eq!(fields, [json!("ledger"), json!("c0"), json!(5), json!(15)]);
    let requested = &log.lines("requested by an operator")[0];
    assert_eq!((&requested["consumer"], &requested["channel"]), (&json!("ledger"), &json!("c0")));
    until(setup, &mut daemon, &admin, LAG, 5.0).await;

    // The channel can be given by its id. The lease ends.
    let (held, events) = lease(&client, 2).await;
    assert_positions(&events, 16..=17);
    let path = format!("/consumers/ledger/{channel_id}/cursor");
    let (status, moved) = ask_socket(setup, Method::POST, &path, r#"{"through":10}"#).await;
    assert_eq!((status, &moved["from"], &moved["to"]), (200, &json!(15), &json!(10)), "{moved}");
    let refused = client.post(COMMIT, &json!({"lease": held, "through": 16})).await;
    assert_problem(&refused, StatusCode::CONFLICT, "not-leased");
    assert_positions(&lease(&client, 2).await.1, 11..=12);
    for (path, body) in [
        ("/consumers/ledger/c0/cursor", r#"{"through":21}"#),
        ("/consumers/ledger/c0/cursor", r#"{"through":-1}"#),
        ("/consumers/ledger/c0/cursor", "{}"),
        ("/consumers/ledger/unknown/cursor", r#"{"through":1}"#),
        ("/consumers/unknown/c0/cursor", r#"{"through":1}"#),
    ] {
        let (status, refused) = ask_socket(setup, Method::POST, path, body).await;
        assert!(status == 400 && refused["usage"].is_string(), "{path} {body}: {status} {refused}");
    }
    assert_eq!(consumer(setup).await["through"], 10, "a refused request changes nothing");
    daemon.stop().await;
    let told = setup.tell(&["consumers", "show"]).await;
    assert!(told.code == Some(1) && told.errors.contains("no daemon is running"), "{told:?}");
}

async fn a_consumer_whose_next_event_was_deleted_is_visible(kind: &str) {
    let options = Options { events: 20, ..Options::default() };
    let Some(mut served) = Served::by(kind, options).await else { return };
    served.setup.set("admin.listen", "127.0.0.1:0");
    let mut daemon = served.setup.start();
    let (admin, client) = (Admin::of(&mut daemon).await, FeedClient::of(&mut daemon).await);
    client.until(&mut daemon, "c0", 20).await;
    let (first, _) = lease(&client, 2).await;
    commit(&client, &first, 2).await;
    served.change("delete from events where position <= 5").await;
    assert_problem(&client.post(&format!("{LEASE}1"), &Value::Null).await, StatusCode::GONE, "gone");
    assert_problem(&client.get("/channels/c0/events?after=0").await, StatusCode::GONE, "gone");
    let setup = &served.setup;
    let scrape = until(setup, &mut daemon, &admin, GONE, 1.0).await;
    for (sample, expected) in [
        (LAG, 18.0),
        (r#"channeld_feed_gone_total{channel="c0"}"#, 2.0),
        (r#"channeld_feed_requests_total{call="lease",status="410"}"#, 1.0),
        (r#"channeld_feed_requests_total{call="events",status="410"}"#, 1.0),
        ("channeld_feed_waiting", 0.0),
    ] {
        assert_eq!(value(&scrape, sample), Some(expected), "{sample}\n{scrape}");
    }
    assert_eq!(of_feed(&scrape), documented(), "the documented metrics of the feed are the exported ones");
    let shown = consumer(setup).await;
    assert_eq!((&shown["gone"], &shown["oldest"], &shown["lag"]), (&json!(true), &json!(6), &json!(18)));
    let text = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(text.contains("the oldest event has position 6"), "{text}");

    // The cursor cannot be set to a position whose next event was deleted.
    let refused = setup.tell(&["consumers", "set", "ledger", "c0", "4", "--yes"]).await;
    assert!(refused.code == Some(64) && refused.errors.contains("between 5"), "{refused:?}");
    assert_eq!(setup.tell(&["consumers", "set", "ledger", "c0", "5", "--yes"]).await.code, Some(0));
    assert_positions(&lease(&client, 1).await.1, [6]);
    assert_eq!(setup.tell(&["status"]).await.code, Some(0));
    let is_over = |answer: &Answered| value(&answer.text, GONE).is_none();
    admin.until(&mut daemon, "/metrics", "the consumer continues", is_over).await;

    // A request that waits is counted.
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.get("/channels/c0/events?after=20&wait=60s").await }
    });
    let waits = |answer: &Answered| value(&answer.text, "channeld_feed_waiting") == Some(1.0);
    admin.until(&mut daemon, "/metrics", "a request waits", waits).await;
    served.simulator.publish(0, 1);
    assert_positions(&FeedEvent::all(&waiting.await.unwrap().json()["events"]), [21]);
    let is_over = |answer: &Answered| value(&answer.text, "channeld_feed_waiting") == Some(0.0);
    admin.until(&mut daemon, "/metrics", "no request waits", is_over).await;
    daemon.stop().await;
}

/// The names of the feed's metrics in a scrape.
fn of_feed(scrape: &str) -> BTreeSet<&str> {
    let names = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.filter(|name| name.starts_with("channeld_feed_")).collect()
}

fn documented() -> BTreeSet<&'static str> {
    let table = include_str!("../../../src/telemetry/metrics/table.md");
    let names = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.filter(|name| name.starts_with("channeld_feed_")).collect()
}

#[tokio::test]
async fn without_a_feed_there_are_no_consumers() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the control socket exists", |_| setup.path("state/control.sock").exists()).await;
    for (method, path, body) in
        [(Method::GET, "/consumers", ""), (Method::POST, "/consumers/ledger/c0/cursor", r#"{"through":1}"#)]
    {
        let (status, answer) = ask_socket(&setup, method, path, body).await;
        let said = answer["not_found"].as_str().unwrap_or_default();
        assert!(status == 404 && said.contains("no feed is configured"), "{path}: {status} {answer}");
    }
    let told = setup.tell(&["consumers", "show"]).await;
    assert!(told.code == Some(1) && told.errors.contains("no feed is configured"), "{told:?}");
    assert_eq!(admin.get("/consumers").await.status, 404, "the admin listener does not serve consumers");
    assert!(!admin.get("/metrics").await.text.contains("channeld_feed_"));
    assert!(admin.get("/status").await.json().get("feed").is_none());
    daemon.stop().await;
}

#[tokio::test]
async fn a_locked_table_of_consumers_blocks_neither_metrics_nor_status() {
    let options = Options { events: 5, ..Options::default() };
    let Some(mut served) = Served::by("postgres", options).await else { return };
    served.setup.set("admin.listen", "127.0.0.1:0");
    let mut daemon = served.setup.start();
    let (admin, client) = (Admin::of(&mut daemon).await, FeedClient::of(&mut daemon).await);
    client.until(&mut daemon, "c0", 5).await;
    let setup = &served.setup;
    assert_eq!(setup.tell(&["consumers", "set", "ledger", "c0", "0", "--yes"]).await.code, Some(0));
    until(setup, &mut daemon, &admin, LAG, 5.0).await;

    let database = served.database.as_ref().unwrap();
    let locker = database.server.client(&database.name).await;
    locker.batch_execute("begin; lock table events_consumers in access exclusive mode").await.unwrap();
    // This status waits for the table for a short time.
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(status["feed"]["consumers"][0]["lag"], 5, "the consumers that were read before remain known");
    // Another process can delay a single answer. The table would delay each of them.
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let asked = Instant::now();
        let scrape = admin.get("/metrics").await;
        assert_eq!((scrape.status, value(&scrape.text, LAG)), (StatusCode::OK, Some(5.0)), "{scrape:?}");
        fastest = fastest.min(asked.elapsed());
    }
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    let has_error = |answer: &Answered| {
        let status = answer.json();
        let warnings = status["warnings"].to_string();
        status["feed"]["error"].is_string() && warnings.contains("the consumers of the feed cannot be read")
    };
    let status = admin.until(&mut daemon, "/status", "the table does not answer", has_error).await.json();
    assert!(status["feed"]["read"].is_string() && status["ready"] == true, "{status}");
    let (refused, answer) = ask_socket(setup, Method::GET, "/consumers", "").await;
    assert!(refused == 500 && answer["failed"].is_string(), "{refused} {answer}");
    assert_eq!(client.get("/channels/c0/events?after=0").await.status, StatusCode::OK, "clients can read events");

    locker.batch_execute("rollback").await.unwrap();
    let deadline = Instant::now() + LONGEST_WAIT;
    while setup.tell(&["status", "--json"]).await.json()[0]["feed"].get("error").is_some() {
        assert!(Instant::now() < deadline, "{}", daemon.log().tail());
    }
    assert_eq!(consumer(setup).await["lag"], 5);
    daemon.stop().await;
}
