//! The stream and the way to it: made or looked at, purged, asked again, behind TLS and logins.

use channeld::simulator::{Options, Simulator};
use serde_json::json;

use super::{assert_whole, setup};
use crate::support::{Authority, Nats, STREAM, Setup, deliverable};

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, ..Options::default() }).await.unwrap()
}

/// Delivers everything there is.
async fn deliver_all(nats: &Nats, setup: &Setup, count: usize) {
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    nats.until_count(count).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_stream_is_made_where_that_is_allowed_and_otherwise_asked_for() {
    let Some(nats) = Nats::start() else { return };
    let simulator = service(5).await;
    let setup = setup(&simulator, nats.address()).with("sinks.bus.create", false);
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    let said = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
    assert!(told.code != Some(0) && said.contains("make it, or set create = true"), "{said}");
    let mut daemon = setup.start();
    daemon.until_logged("sink refused: its events wait and are offered again").await;
    daemon.until_logged("channel started").await;
    daemon.stop().await;

    let setup = setup.with("sinks.bus.create", true);
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    assert!(told.code == Some(0) && String::from_utf8_lossy(&told.out).contains("will be made"), "{told:?}");
    deliver_all(&nats, &setup, 5).await;
    let made = nats.api(&format!("STREAM.INFO.{STREAM}"), json!({})).await;
    assert_eq!((&made["config"]["allow_atomic"], &made["config"]["storage"]), (&json!(true), &json!("file")), "{made}");
    let told = setup.tell(&["check", "--connect"]).await;
    let said = String::from_utf8_lossy(&told.out).into_owned();
    assert!(told.code == Some(0) && said.contains("exactly once, in atomic batches"), "{told:?}");
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn a_stream_that_would_lose_positions_is_refused_with_what_to_do() {
    let Some(nats) = Nats::start() else { return };
    nats.make(json!({"subjects": ["channeld.>"]})).await;
    let simulator = service(1).await;
    let setup = setup(&simulator, nats.address());
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    let said = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
    assert!(told.code != Some(0) && said.contains("nats stream edit events --subjects="), "{said}");
}

#[tokio::test]
async fn what_an_operator_asks_for_again_comes_again_and_a_cursor_put_back_repeats_nothing() {
    let Some(nats) = Nats::start() else { return };
    let window = 120_000_000_000_u64;
    for stream in [json!({"duplicate_window": window}), json!({"duplicate_window": window, "allow_atomic": false})] {
        let simulator = service(20).await;
        nats.make(stream).await;
        let setup = setup(&simulator, nats.address()).with("api.page_limit", 7);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        nats.until_count(20).await;
        let range = ["replay", "--channel", "c0", "--sink", "bus", "--from", "3", "--to", "4"];
        assert_eq!(setup.tell(&range).await.code, Some(0));
        nats.until_count(22).await;
        daemon.stop().await;
        let mut offsets = nats.offsets().await;
        let mut again = offsets.split_off(20);
        again.sort_unstable();
        assert_eq!((&offsets, &again), (&deliverable(&simulator, 0), &vec![3, 4]));

        let set = ["cursor", "set", "c0", "--sink", "bus", "--to", "5", "--yes"];
        assert_eq!(setup.tell(&set).await.code, Some(0));
        simulator.publish(0, 1);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        nats.until_count(23).await;
        daemon.stop().await;
        let all = deliverable(&simulator, 0);
        assert_eq!(nats.offsets().await[22..], all[all.len() - 1..], "the new event alone");
        nats.api(&format!("STREAM.DELETE.{STREAM}"), json!({})).await;
    }
}

#[tokio::test]
async fn a_stream_that_is_purged_while_it_is_used_takes_what_follows() {
    let Some(nats) = Nats::start() else { return };
    for stream in [json!({}), json!({"allow_atomic": false})] {
        let simulator = service(10).await;
        nats.make(stream).await;
        let setup = setup(&simulator, nats.address());
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        nats.until_count(10).await;
        daemon
            .until("that is recorded", |daemon| {
                daemon.log().lines("batch recorded").iter().any(|line| line["offset"] == 10)
            })
            .await;
        nats.api(&format!("STREAM.PURGE.{STREAM}"), json!({})).await;
        simulator.publish(0, 10);
        nats.until_count(10).await;
        daemon.stop().await;
        assert_eq!(nats.offsets().await, deliverable(&simulator, 0)[10..]);
        nats.api(&format!("STREAM.DELETE.{STREAM}"), json!({})).await;
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_login_or_a_certificate_is_given_it_and_no_secret_shows() {
    let simulator = service(3).await;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let authority = Authority::new("tests");
    let ca = authority.write(&path("ca.pem"));
    let [certificate, key] = authority.issue_server(&path("server.pem"), &path("server-key.pem"));
    let [client, client_key] = authority.issue(&path("client.pem"), &path("client-key.pem"));
    let mut tried = 0;
    for (lines, login, keys) in [
        (
            "authorization { user: me, password: hunter2 }".to_owned(),
            json!({"user": "me", "pass": "hunter2"}),
            vec![("user", json!("me")), ("password", json!("hunter2"))],
        ),
        (
            "authorization { token: hunter2 }".to_owned(),
            json!({"auth_token": "hunter2"}),
            vec![("token", json!("hunter2"))],
        ),
    ] {
        let Some(nats) = Nats::start_with(&lines, login) else { return };
        let mut with = setup(&simulator, nats.address());
        with.keep_secret("hunter2");
        with.write();
        let told = with.tell(&["check", "--connect"]).await;
        let said = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
        assert!(told.code != Some(0) && said.contains("it does not let us in"), "{said}");
        for (key, value) in keys {
            with.set(&format!("sinks.bus.{key}"), value);
        }
        deliver_all(&nats, &with, 3).await;
        tried += 1;
    }
    // The server proves itself by the private authority, and takes clients with a certificate of it alone.
    let lines =
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true, timeout: 5 }}");
    let Some(nats) = Nats::start_with(&lines, json!({})) else { return };
    let url = format!("tls://localhost:{}", nats.address().port());
    let with = setup(&simulator, nats.address()).with("sinks.bus.url", url).with("sinks.bus.ca_file", ca);
    with.write();
    let told = with.tell(&["check", "--connect"]).await;
    assert_ne!(told.code, Some(0), "without a client certificate: {told:?}");
    let with = with.with("sinks.bus.client_certificate_file", client).with("sinks.bus.client_key_file", client_key);
    with.write();
    let told = with.tell(&["check", "--connect"]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    let mut daemon = with.start();
    daemon
        .until("all is recorded", |daemon| daemon.log().lines("batch recorded").iter().any(|line| line["offset"] == 3))
        .await;
    daemon.stop().await;
    assert_eq!(tried, 2);
}

#[tokio::test]
async fn a_stream_that_is_full_is_waited_for_and_no_event_is_given_up() {
    let Some(nats) = Nats::start() else { return };
    let full = json!({"max_msgs": 15, "discard": "new"});
    nats.make(full).await;
    let simulator = service(40).await;
    let setup = setup(&simulator, nats.address()).with("api.page_limit", 5).with("sinks.bus.give_up_after", "1s");
    let mut daemon = setup.start();
    daemon.until("it is said", |daemon| daemon.log().0.contains("give the stream or the account more room")).await;
    let began = std::time::Instant::now();
    let longer = std::time::Duration::from_millis(2_200);
    daemon.until("longer than an event is offered", |_| began.elapsed() > longer).await;
    let settings = json!({"name": STREAM, "subjects": ["channeld.>", "channeld-positions.>"], "retention": "limits",
        "storage": "file", "num_replicas": 1, "allow_atomic": true, "allow_rollup_hdrs": true, "discard": "new"});
    let changed = nats.api(&format!("STREAM.UPDATE.{STREAM}"), settings).await;
    assert!(changed["error"].is_null(), "{changed}");
    nats.until_count(40).await;
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event was given up");
    daemon.stop().await;
    assert_whole(&nats, &simulator, &[]).await;
}
