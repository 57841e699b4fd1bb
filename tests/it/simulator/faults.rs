//! The refusals and faults that a client of the service has to handle.

use std::time::Duration;

use simulator::{ApiVersion, Fault, Misbehaviour, Options, Route, Simulator};

use super::client::{Client, backlog, id_of, json, on_each_version, refusal};

on_each_version! {
    missing_or_forbidden_resources_are_refused_with_the_envelope,
    requested_faults_occur_and_are_counted,
    a_reset_is_a_connection_error,
    a_fault_can_affect_one_route_and_slowness_delays_answers,
    random_faults_occur_at_their_rate_and_never_in_health_checks,
}

async fn missing_or_forbidden_resources_are_refused_with_the_envelope(version: ApiVersion) {
    let simulator = Simulator::start(Options { channels: 2, ..backlog(version, 3) }).await.unwrap();
    let mut client = Client::of(&simulator);
    let (own, other) = (client.channels[0].clone(), client.channels[1].clone());
    let absent = "00000000-0000-4000-8000-000000000000";
    let missing = |code: &str| (404, "NOT_FOUND".to_owned(), code.to_owned());
    let invalid = || (400, "VALIDATION_ERROR".to_owned(), String::new());
    let id = id_of(&client.poll("").await.records[0]);
    for (path, expected) in [
        (format!("/channels/{absent}/events"), missing("CHANNEL_NOT_FOUND")),
        (format!("/channels/{absent}/events/search"), missing("CHANNEL_NOT_FOUND")),
        (format!("/channels/{absent}/events/search/{id}"), missing("CHANNEL_NOT_FOUND")),
        (format!("/channels/{own}/events/search/{absent}"), missing("EVENT_NOT_FOUND")),
        (format!("/channels/{other}/events/search/{id}"), missing("EVENT_NOT_FOUND")),
        (format!("/channels/{own}/watchers/{absent}"), missing("WATCHER_NOT_FOUND")),
        ("/channels/7/events".to_owned(), invalid()),
        (format!("/channels/{own}/events/search/7"), invalid()),
        (format!("/channels/{own}/events?limit=201"), invalid()),
        (format!("/channels/{own}/events?offset=-1"), invalid()),
        (format!("/channels/{own}/events?type=watcher.event"), invalid()),
        (format!("/channels/{own}/events/search?type=watcher.event&status=active"), invalid()),
    ] {
        assert_eq!(refusal(client.get(&path).await).await, expected, "{path}");
    }

    simulator.archive(0);
    assert_eq!(refusal(client.get(&format!("/channels/{own}/events")).await).await, missing("CHANNEL_NOT_FOUND"));
    assert_eq!(client.get(&format!("/channels/{other}/events")).await.status(), 200);

    simulator.misbehave(1, Some(Misbehaviour::Status(401)));
    let not_onboarded = (401, "ORGANIZATION_NOT_FOUND".to_owned(), String::new());
    assert_eq!(refusal(client.get(&format!("/channels/{other}/events")).await).await, not_onboarded);
    simulator.misbehave(1, None);

    simulator.set_api_key("rotated");
    assert_eq!(refusal(client.get(&format!("/channels/{other}/events")).await).await.0, 401);
    assert_eq!(client.get("/health-check").await.status(), 200);
    "rotated".clone_into(&mut client.key);
    assert_eq!(client.get(&format!("/channels/{other}/events")).await.status(), 200);
    let anonymous = client.http.get(format!("{}/channels/{other}/events", client.base)).send().await.unwrap();
    assert_eq!(refusal(anonymous).await.0, 401);
}

async fn requested_faults_occur_and_are_counted(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 10)).await.unwrap();
    let client = Client::of(&simulator);
    let path = format!("/channels/{}/events", client.channels[0]);
    for fault in [
        Fault::RateLimited { retry_after: Some("7".to_owned()) },
        Fault::RateLimited { retry_after: None },
        Fault::Status(503),
        Fault::Html(502),
        Fault::Html(200),
        Fault::EmptyBody,
        Fault::TruncatedJson,
        Fault::WrongShape,
        Fault::NotDescending,
        Fault::WithoutOffset,
    ] {
        simulator.fail_next(fault, 1);
    }
    let limited = client.get(&path).await;
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "7"));
    assert!(!client.get(&path).await.headers().contains_key("retry-after"));
    assert_eq!(refusal(client.get(&path).await).await, (503, "INTERNAL_ERROR".to_owned(), String::new()));
    let text = async || {
        let response = client.get(&path).await;
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert!(matches!(text().await, (502, html) if html.starts_with("<html>")));
    assert!(matches!(text().await, (200, html) if html.starts_with("<html>")));
    assert_eq!(text().await, (200, String::new()));
    let (status, truncated) = text().await;
    assert!(status == 200 && truncated.starts_with(r#"{"events":["#) && !truncated.ends_with('}'));
    assert!(json(&text().await.1)["events"].is_object());
    let offsets: Vec<_> = json(&text().await.1)["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["headers"]["offset"].as_i64().unwrap())
        .collect();
    assert_eq!(offsets, (1..=10).collect::<Vec<_>>());
    let unplaced = json(&text().await.1)["events"].as_array().unwrap().clone();
    assert!(unplaced[0]["headers"]["offset"].is_null() && unplaced[1]["headers"]["offset"].is_i64());
    assert_eq!(client.poll("").await.offsets.len(), 10);
    assert_eq!((simulator.requests().poll, simulator.requests().search), (11, 0));
}

async fn a_reset_is_a_connection_error(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 10)).await.unwrap();
    let client = Client::of(&simulator);
    let path = format!("/channels/{}/events", client.channels[0]);
    simulator.fail_next(Fault::Reset, 1);
    assert!(client.try_get(&path).await.unwrap_err().is_request());

    let whole = client.get(&path).await.text().await.unwrap();
    simulator.fail_next(Fault::ResetMidway, 1);
    let mut midway = client.get(&path).await;
    let mut seen = Vec::new();
    let error = loop {
        match midway.chunk().await {
            Ok(chunk) => seen.extend(chunk.expect("the half is not all")),
            Err(error) => break error,
        }
    };
    assert_eq!(String::from_utf8_lossy(&seen), whole[..whole.len() / 2], "{error}");
    assert!(format!("{error:?}").contains("ConnectionReset"), "{error:?}");
    assert_eq!(client.poll("").await.offsets.len(), 10);
}

async fn a_fault_can_affect_one_route_and_slowness_delays_answers(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 10)).await.unwrap();
    let client = Client::of(&simulator);
    simulator.fail_next_on(Route::Event, Fault::Status(500), 1);
    let page = client.poll("").await;
    let id = id_of(&page.records[0]);
    assert_eq!(client.event(&id).await.status(), 500);
    assert_eq!(client.event(&id).await.status(), 200);
    let delay = Duration::from_millis(200);
    simulator.fail_next(Fault::Slow(delay), 1);
    let asked = std::time::Instant::now();
    client.poll("").await;
    assert!(asked.elapsed() >= delay);
}

async fn random_faults_occur_at_their_rate_and_never_in_health_checks(version: ApiVersion) {
    let simulator = Simulator::start(Options { faults: 1.0, ..backlog(version, 1) }).await.unwrap();
    let client = Client::of(&simulator);
    let path = format!("/channels/{}/events", client.channels[0]);
    assert_eq!(client.get(&path).await.status(), 429);
    assert_eq!(client.get("/health-check").await.status(), 200);
    assert_eq!(client.get(&path).await.status(), 500);
}
