//! Requests stay within the rate that the service and the operator allow, and a wait for the next request is visible.

use std::time::{Duration, Instant};

use serde_json::Value;
use simulator::{Fault, Options, Route, Simulator};

use crate::support::{Admin, Answered, Setup, deliverable};

async fn service(channels: usize, events: u64) -> Simulator {
    Simulator::start(Options { channels, events, ..Options::default() }).await.unwrap()
}

fn requests(simulator: &Simulator) -> u64 {
    let requests = simulator.requests();
    requests.poll + requests.search + requests.event
}

/// The number of channels that wait for their next request.
fn waiting(status: &Answered) -> usize {
    let awaits = |channel: &&Value| channel["state"] == "awaiting_turn";
    status.json()["channels"].as_array().unwrap().iter().filter(awaits).count()
}

#[tokio::test]
async fn after_a_429_no_channel_asks_before_retry_after() {
    const CHANNELS: usize = 4;
    let simulator = service(CHANNELS, 5).await;
    let setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the backlog arrives", |_| setup.lines() == CHANNELS * 5).await;

    let began = Instant::now();
    simulator.fail_next_on(Route::Poll, Fault::RateLimited { retry_after: Some("8".to_owned()) }, 1);
    let all_wait = |answer: &Answered| waiting(answer) >= CHANNELS - 1;
    admin.until(&mut daemon, "/status", "the other channels wait", all_wait).await;
    let ready = admin.get("/readyz").await.text;
    assert!(ready.matches("has not answered a poll").count() <= 1, "only the refused channel may be named: {ready}");
    let before = requests(&simulator);
    daemon.until("requests are sent again", |_| requests(&simulator) > before).await;
    assert!(began.elapsed() >= Duration::from_secs(8), "{:?}", began.elapsed());

    (0..CHANNELS).for_each(|channel| simulator.publish(channel, 5));
    daemon.until("everything arrives", |_| setup.lines() == CHANNELS * 10).await;
    daemon.stop().await;
    for channel in 0..CHANNELS {
        assert_eq!(setup.offsets(&format!("c{channel}")), deliverable(&simulator, channel));
    }
}

#[tokio::test]
async fn requests_per_second_are_shared_and_their_waits_are_visible_and_end_at_a_stop() {
    const CHANNELS: usize = 6;
    const RATE: u32 = 4;
    let simulator = service(CHANNELS, 3).await;
    let setup = Setup::reading(&simulator).with_admin().with("api.requests_per_second", RATE);
    let began = Instant::now();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the backlog of every channel arrives", |_| setup.lines() == CHANNELS * 3).await;
    let all_wait = |answer: &Answered| waiting(answer) >= CHANNELS - 2;
    admin.until(&mut daemon, "/status", "the channels wait", all_wait).await;
    let ready = |answer: &Answered| answer.status == 200;
    admin.until(&mut daemon, "/readyz", "it is ready", ready).await;
    let before = requests(&simulator);
    while requests(&simulator) < before + 20 {
        let answer = admin.until(&mut daemon, "/readyz", "it answers", |_| true).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let allowed = began.elapsed().as_secs_f64() * f64::from(RATE) + 1.0;
    let sent = requests(&simulator);
    assert!(f64::from(u32::try_from(sent).unwrap()) <= allowed, "{sent} requests, {allowed} allowed");

    let stopping = Instant::now();
    daemon.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
    for channel in 0..CHANNELS {
        assert_eq!(setup.offsets(&format!("c{channel}")), deliverable(&simulator, channel));
    }
}
