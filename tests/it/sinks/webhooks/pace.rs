//! The rate limit of a webhook, and the pauses that its endpoint asks for.

use std::time::{Duration, Instant};

use simulator::{Options, Simulator};

use super::webhook_only;
use crate::support::{Admin, Answered, Receiver, Reply};

#[tokio::test]
async fn the_rate_limit_of_a_sink_spans_channels_and_does_not_delay_a_stop() {
    const INTERVAL: Duration = Duration::from_millis(50);
    let simulator =
        Simulator::start(Options { events: 10, channels: 2, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver)
        .with("channels.c1.sinks", vec!["hook"])
        .with("sinks.hook.rate_limit", "20/s");
    receiver.reply(Reply::Refuse(503, None), 1);
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 20).await;
    daemon.stop().await;
    let arrivals = receiver.arrivals();
    // The 20 arrivals have 19 intervals. A delayed request shortens the interval after it, so four of them are
    // tolerance.
    let least = INTERVAL * 15;
    let took = arrivals[19] - arrivals[0];
    assert!(took >= least, "{took:?}");

    simulator.publish(0, 5);
    let setup = setup.with("sinks.hook.rate_limit", "1/h");
    let mut daemon = setup.start();
    daemon.until("the first request is sent", |_| receiver.received() == 21).await;
    let asked = Instant::now();
    daemon.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(receiver.received(), 21);
}

#[tokio::test]
async fn a_pause_that_an_endpoint_asks_for_is_kept_and_shown_by_every_lane() {
    let simulator = Simulator::start(Options { events: 2, channels: 3, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver)
        .with_admin()
        .with("channels.c1.sinks", vec!["hook"])
        .with("channels.c2.sinks", vec!["hook"]);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the backlog arrives", |_| receiver.received() == 6).await;
    let kind =
        |answer: &Answered, channel: usize| answer.json()["channels"][channel]["lanes"][0]["error"]["kind"].clone();
    let began = Instant::now();
    receiver.reply(Reply::Refuse(429, Some(8)), 1);
    simulator.publish(0, 1);
    admin.until(&mut daemon, "/status", "the first lane is refused", |answer| kind(answer, 0) == "refused").await;
    simulator.publish(1, 1);
    simulator.publish(2, 1);
    let others_wait = |answer: &Answered| [1, 2].into_iter().all(|channel| kind(answer, channel) == "asked_to_wait");
    admin.until(&mut daemon, "/status", "the other lanes wait", others_wait).await;
    assert_eq!(receiver.requests(), 7, "only the refused request was sent");
    daemon.until("everything arrives", |_| receiver.received() == 9).await;
    daemon.stop().await;
    assert_eq!(receiver.requests(), 10);
    assert!(receiver.arrivals()[6] - began >= Duration::from_secs(8), "{:?}", receiver.arrivals()[6] - began);
}
