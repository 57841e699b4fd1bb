//! Events may contain any bytes and have any size. An event that the stream does not accept does not affect the others.

use axum::response::IntoResponse;
use proof::event::ChannelId;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Daemon, LONGEST_WAIT, Nats, Published, Scripted, Setup};

/// `max_payload` of the test server.
const MAX_PAYLOAD: usize = 64 * 1024;

/// A service with one channel that contains a notice for each of these types. The status reason of each notice is
/// `filler(offset)` bytes long.
pub(in crate::sinks) async fn notices(types: &[&str], filler: impl Fn(i64) -> usize) -> Scripted {
    let notice = |(kind, offset): (&&str, i64)| {
        let id = Uuid::from_u128(u128::try_from(offset).unwrap());
        let reason = "x".repeat(filler(offset));
        json!({"event_id": id, "headers": {"type": kind, "offset": offset, "proofs": []}, "payload": {
            "status": "deployed", "status_reason": reason, "wallet_id": id, "address": "0x01", "chain_selector": "1",
            "timestamp": 1_750_000_000}})
    };
    let events: Vec<Value> = types.iter().zip(1..).map(notice).collect();
    Scripted::answering(move |asked| {
        let above = |event: &&Value| event["headers"]["offset"].as_i64() > Some(asked.offset.unwrap_or(0));
        let page: Vec<_> = events.iter().filter(above).take(asked.limit.unwrap_or(100)).collect();
        let has_more = page.last().is_some_and(|last| last["headers"]["offset"] != events.len());
        let newest_first: Vec<_> = page.into_iter().rev().collect();
        axum::Json(json!({"events": newest_first, "has_more": has_more})).into_response()
    })
    .await
}

fn setup(service: &Scripted, nats: &Nats) -> Setup {
    Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))]).publishing(1, nats.address())
}

#[tokio::test]
async fn every_type_of_event_is_published_under_a_subject_of_its_channel() {
    let Some(nats) = Nats::start() else { return };
    let long = "long.".repeat(2_000);
    let types =
        ["wallet.status", "a b", "*", ">", "..", "ünïcode", "", "new\r\nPUB x 1\r\n", "$JS.API.STREAM.DELETE", &long];
    let service = notices(&types, |_| 10).await;
    let setup = setup(&service, &nats);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    nats.until_count(types.len()).await;
    daemon.stop().await;

    let events = nats.events().await;
    let offsets: Vec<_> = events.iter().map(Published::offset).collect();
    assert_eq!(offsets, (1..=10).collect::<Vec<_>>());
    for (event, kind) in events.iter().zip(types) {
        assert!(event.subject.starts_with("channeld.c0.") && event.subject.len() < 250, "{}", event.subject);
        let record: Value = serde_json::from_slice(&event.body).unwrap();
        assert_eq!((&record["type"], &record["offset"]), (&json!(kind), &json!(event.offset())));
    }
    assert_eq!(events[0].subject, "channeld.c0.wallet.status");
    let id = ChannelId(Uuid::from_u128(1));
    for (name, value) in [
        ("Nats-Msg-Id", format!("{id}:1:{}", Uuid::from_u128(1))),
        ("Channeld-Channel-Id", id.to_string()),
        ("Channeld-Offset", "1".to_owned()),
        ("Channeld-Event-Id", Uuid::from_u128(1).to_string()),
        ("Channeld-Verification", "unsigned".to_owned()),
        ("Channeld-Digest", String::new()),
        ("Content-Type", "application/json".to_owned()),
    ] {
        assert_eq!(events[0].header(name), value, "{name}");
    }
}

/// The third of five events is too large.
async fn too_large(stream: Value, limit: usize, limited_by: &str) {
    let lines = format!("max_payload: {MAX_PAYLOAD}");
    let Some(nats) = Nats::start_with(&lines, json!({})) else { return };
    nats.make(stream).await;
    let service = notices(&["wallet.status"; 5], |offset| if offset == 3 { 2 * MAX_PAYLOAD } else { 1_000 }).await;
    let setup = setup(&service, &nats);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    nats.until_count(2).await;
    daemon.until_logged("sink refused again").await;
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    let error = status["channels"][0]["lanes"][0]["error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains(limited_by) && error.contains(&limit.to_string()), "{error}");
    let sizes: Vec<usize> = error.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(sizes[0] > 2 * MAX_PAYLOAD && sizes[1] == limit, "the message contains both sizes: {error}");
    assert_eq!(nats.offsets().await, [1, 2], "the events after the refused one wait");
    daemon.stop().await;

    let setup = setup.with("sinks.bus.give_up_after", "1s");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    nats.until_count(4).await;
    assert_eq!(setup.tell(&["dead-letters", "list", "--json"]).await.each("offset"), [3]);
    daemon.stop().await;
    assert_eq!(nats.offsets().await, [1, 2, 4, 5]);
}

#[tokio::test]
async fn an_event_that_is_too_large_blocks_and_becomes_a_dead_letter_alone() {
    tokio::join!(
        too_large(json!({}), MAX_PAYLOAD, "max_payload"),
        too_large(json!({"max_msg_size": 20_000}), 20_000, "max_msg_size"),
        too_large(json!({"allow_atomic": false}), MAX_PAYLOAD, "max_payload"),
    );
}

/// Waits until the lane is unavailable with an error that contains these words, asserts that it is blocked and that no event
/// became a dead letter.
async fn until_blocked(daemon: &mut Daemon, setup: &Setup, words: &str) {
    let lane = async || setup.tell(&["status", "--json"]).await.json().remove(0)["channels"][0]["lanes"][0].take();
    let is_refused = |lane: &Value| {
        let error = &lane["error"];
        error["times"].as_u64() >= Some(3) && error["message"].as_str().is_some_and(|message| message.contains(words))
    };
    daemon.until_logged("channel started").await;
    let deadline = std::time::Instant::now() + LONGEST_WAIT;
    let mut found = lane().await;
    while !is_refused(&found) {
        assert!(!daemon.has_ended() && std::time::Instant::now() < deadline, "{words}: {found}");
        found = lane().await;
    }
    assert_eq!((&found["state"], &found["error"]["kind"]), (&json!("blocked"), &json!("unavailable")), "{found}");
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event became a dead letter");
}

#[tokio::test]
async fn a_stream_that_accepts_no_event_blocks_the_lane_and_makes_no_dead_letter() {
    // The positions are accepted, and no event is.
    for (stream, change, words) in [
        (
            json!({"subjects": ["other.>", "channeld-positions.>"]}),
            json!({"subjects": ["channeld.>", "channeld-positions.>"]}),
            "does not take the subject",
        ),
        (json!({"max_msg_size": 1_400}), json!({"max_msg_size": -1}), "max_msg_size"),
    ] {
        for atomic in [true, false] {
            let Some(nats) = Nats::start() else { return };
            let mut stream = stream.clone();
            stream["allow_atomic"] = json!(atomic);
            nats.make(stream).await;
            let service = notices(&["wallet.status"; 5], |_| 1_000).await;
            let setup = setup(&service, &nats).with("sinks.bus.give_up_after", "1ms");
            let mut daemon = setup.start();
            until_blocked(&mut daemon, &setup, words).await;
            until_blocked(&mut daemon, &setup, "every event is refused").await;
            nats.change(change.clone()).await;
            nats.until_count(5).await;
            daemon.stop().await;
            assert_eq!(nats.offsets().await, [1, 2, 3, 4, 5]);
        }
    }
}

#[tokio::test]
async fn a_missing_permission_blocks_the_lane_and_makes_no_dead_letter() {
    let denied = "permissions: { publish: { deny: \"channeld.c0.>\" } }";
    let user = format!("user: \"me\", password: \"secret-of-a-test\", {denied}");
    let lines = format!("authorization {{ users: [ {{ {user} }}, {{ user: \"all\", password: \"all\" }} ] }}");
    for stream in [json!({}), json!({"allow_atomic": false})] {
        let Some(nats) = Nats::start_with(&lines, json!({"user": "all", "pass": "all"})) else { return };
        nats.make(stream).await;
        let service = notices(&["wallet.status"; 3], |_| 10).await;
        let setup = setup(&service, &nats).with("sinks.bus.user", "me").with("sinks.bus.password", "secret-of-a-test");
        let setup = setup.with("sinks.bus.timeout", "300ms").with("sinks.bus.give_up_after", "1ms");
        let mut daemon = setup.start();
        until_blocked(&mut daemon, &setup, "give the user this permission").await;
        daemon.stop().await;
        assert_eq!(nats.count().await, 0);
    }
}

#[tokio::test]
async fn an_event_whose_subject_the_stream_lacks_is_refused_alone() {
    let Some(nats) = Nats::start() else { return };
    nats.make(json!({"subjects": ["channeld.c0.wallet.>", "channeld-positions.>"]})).await;
    let service = notices(&["wallet.status", "wallet.status", "other", "wallet.status"], |_| 10).await;
    let setup = setup(&service, &nats);
    let mut daemon = setup.start();
    daemon.until_logged("sink refused again").await;
    assert_eq!(nats.offsets().await, [1, 2]);
    assert!(daemon.log().0.contains("does not take the subject channeld.c0.other: add it"), "{}", daemon.log().0);
    nats.change(json!({"subjects": ["channeld.>", "channeld-positions.>"]})).await;
    nats.until_count(4).await;
    daemon.stop().await;
    assert_eq!(nats.offsets().await, [1, 2, 3, 4]);
}
