//! Every fault of the service is reported and retried, and no event is lost.

use std::time::{Duration, Instant};

use simulator::{Fault, Options, Route, Simulator};

use crate::support::{Authority, Daemon, Receiver, Setup, deliverable, free_address};

const RETRYING: &str = "failed: retrying; not logged again while the kind of error stays the same";
const OPERATOR_MUST_ACT: &str = "failed: an operator must act; retrying";
const RECOVERED: &str = "works again";

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn each_service_fault_is_survived_without_loss() {
    let limited = |retry_after: &str| Fault::RateLimited { retry_after: Some(retry_after.to_owned()) };
    for (fault, message, kind) in [
        (Fault::Status(400), OPERATOR_MUST_ACT, "refused"),
        (Fault::Status(401), OPERATOR_MUST_ACT, "refused"),
        (Fault::Status(403), OPERATOR_MUST_ACT, "refused"),
        (Fault::RateLimited { retry_after: None }, RETRYING, "rate-limited"),
        (limited("0"), RETRYING, "rate-limited"),
        (limited("soon"), RETRYING, "rate-limited"),
        (Fault::Status(500), RETRYING, "transient"),
        (Fault::Status(503), RETRYING, "transient"),
        (Fault::Html(502), RETRYING, "transient"),
        (Fault::Html(200), RETRYING, "malformed"),
        (Fault::EmptyBody, RETRYING, "malformed"),
        (Fault::TruncatedJson, RETRYING, "malformed"),
        (Fault::WrongShape, RETRYING, "malformed"),
        (Fault::NotDescending, RETRYING, "malformed"),
        (Fault::WithoutOffset, RETRYING, "malformed"),
        (Fault::Reset, RETRYING, "transient"),
        (Fault::ResetMidway, RETRYING, "transient"),
        (Fault::Slow(Duration::from_secs(8)), RETRYING, "transient"),
    ] {
        let simulator = service(40).await;
        let mut setup = Setup::reading(&simulator).with("api.page_limit", 15);
        if let Fault::Slow(_) = fault {
            // Shorter than the delay of 8 s, but long enough that a busy machine alone does not exceed it.
            setup.set("api.request_timeout", "2s");
        }
        simulator.fail_next(fault.clone(), 2);
        let mut daemon = setup.start();
        daemon.until("the backlog arrives", |_| setup.lines() == 40).await;
        simulator.fail_next_on(Route::Poll, fault.clone(), 2);
        simulator.publish(0, 20);
        daemon
            .until("everything arrives and works again", |daemon| {
                setup.lines() == 60 && daemon.log().lines(RECOVERED).len() >= 2
            })
            .await;
        let log = daemon.stop().await;

        assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0), "{fault:?}");
        let said = log.lines(message);
        assert!(said.len() == 2 && said.iter().all(|line| line["kind"] == kind), "{fault:?}: {said:?}");
    }
}

#[tokio::test]
async fn retry_after_of_the_service_is_obeyed() {
    let simulator = service(5).await;
    let setup = Setup::reading(&simulator);
    simulator.fail_next(Fault::RateLimited { retry_after: Some("2".to_owned()) }, 1);
    let mut daemon = setup.start();
    daemon.until("the first request", |_| simulator.requests().poll == 1).await;
    let refused = Instant::now();
    daemon.until("the second request", |_| simulator.requests().poll >= 2).await;
    assert!(refused.elapsed() >= Duration::from_millis(1900), "{:?}", refused.elapsed());
    daemon.until("everything arrives", |_| setup.lines() == 5).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_wrong_key_is_reported_once_and_never_printed() {
    let simulator = service(10).await;
    let mut setup = Setup::reading(&simulator).with("log.level", "trace");
    let key = simulator.announcement().api_key.clone();
    simulator.set_api_key("the-key-that-the-service-wants");
    setup.keep_secret("the-key-that-the-service-wants");
    let mut daemon = setup.start();
    daemon.until("the request is retried often", |_| simulator.requests().poll > 20).await;

    simulator.set_api_key(&key);

    daemon.until("everything arrives", |_| setup.lines() == 10).await;
    daemon.until_logged(RECOVERED).await;
    let log = daemon.stop().await;
    let said = log.at("ERROR");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0]["error"].as_str().unwrap().contains("HTTP 401"), "{said:?}");
}

#[tokio::test]
async fn run_and_check_report_a_wrong_address_or_key_in_the_same_words() {
    let simulator = service(1).await;
    let (plain, tls) = (Receiver::start().await, Receiver::start_tls(&Authority::new("tests")).await);
    let base = simulator.announcement().base_url.clone();
    let good = || Setup::reading(&simulator);
    let at = |url: &str| good().with("api.base_url", url);
    for (setup, words) in [
        (at(base.trim_end_matches("/v1")), "is api.base_url correct, and does it end with the version (such as /v1)?"),
        (
            at(&plain.url().replace("/hook", "/v1")),
            "is api.base_url correct, and does it end with the version (such as /v1)?",
        ),
        (
            at(&base.replace("http:", "https:")),
            "the server there does not use TLS: should api.base_url begin with http://",
        ),
        (at(&tls.url().replace("https:", "http:")), "should api.base_url begin with https://"),
        (good().with("api.api_key", "another"), "missing or wrong API key); check api.api_key"),
    ] {
        let mut daemon = setup.start();
        let said = |said: &str| said.contains(words) && !said.contains("check api.base_url");
        let is_logged = |daemon: &Daemon| {
            let lines = [daemon.log().lines(RETRYING), daemon.log().lines(OPERATOR_MUST_ACT)].concat();
            lines.first().is_some_and(|line| said(line["error"].as_str().unwrap()))
        };
        daemon.until(words, is_logged).await;
        daemon.stop().await;
        let told = setup.tell(&["check", "--connect", "--json"]).await;
        let shown: serde_json::Value = serde_json::from_slice(&told.out).unwrap();
        let of_channel = shown["asked"].as_array().unwrap().iter().find(|asked| asked["what"] == "channel").unwrap();
        assert!(told.code == Some(69) && said(of_channel["message"].as_str().unwrap()), "{words}: {shown:#}");
    }
}

#[tokio::test]
async fn an_unreachable_service_is_retried_at_the_start() {
    let listen = free_address();
    let first = Simulator::start(Options { listen, events: 0, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&first);
    first.stop().await;
    let mut daemon = setup.start();
    daemon.until_logged(RETRYING).await;

    let options = Options { listen, events: 10, ..Options::default() };
    let _second = Simulator::start(options).await.unwrap();

    daemon.until("everything arrives", |_| setup.lines() == 10).await;
    daemon.stop().await;
}
