//! A stop and a restart lose no event. They repeat no event, except an event that a hanging sink has not answered.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use simulator::{Options, Simulator};

use crate::support::{Receiver, Reply, Setup, deliverable, offsets};

const EVENTS: u64 = 60;

async fn service() -> Simulator {
    Simulator::start(Options { events: EVENTS, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

fn webhook_only(simulator: &Simulator, receiver: &Receiver) -> Setup {
    let mut setup = Setup::reading(simulator).with_webhook("hook", receiver).with("channels.c0.sinks", vec!["hook"]);
    setup.remove("sinks.file");
    setup
}

async fn run_to_the_end(setup: &Setup, receiver: &Receiver, expected: &[i64]) {
    let last = *expected.last().unwrap();
    let mut daemon = setup.start();
    let arrived = || receiver.delivered().last().is_some_and(|delivered| delivered.offset == last);
    daemon.until("the rest arrives", |daemon| daemon.has_logged("channel started") && arrived()).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_stop_in_the_middle_of_a_batch_lets_it_finish() {
    for signal in [Signal::TERM, Signal::INT] {
        let simulator = service().await;
        let receiver = Receiver::start().await;
        let setup = webhook_only(&simulator, &receiver).with("api.page_limit", 25);
        receiver.always(Some(Reply::Slow(Duration::from_millis(10))));
        let mut daemon = setup.start();
        daemon.until("a part of the batch has arrived", |_| receiver.received() >= 30).await;
        daemon.signal(signal);
        let ended = daemon.ended().await;

        assert_eq!(ended.code, Some(0), "{signal:?}");
        let expected = deliverable(&simulator, 0);
        run_to_the_end(&setup, &receiver, &expected).await;
        assert_eq!(offsets(&receiver.delivered()), expected, "{signal:?}");
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_sink_that_refuses() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver).with("sinks.hook.timeout", "200ms").with("api.page_limit", 25);
    let mut daemon = setup.start();
    daemon.until("some events arrive", |_| receiver.received() >= 30).await;
    receiver.always(Some(Reply::Refuse(503, Some(3600))));
    let before = receiver.requests();
    daemon.until("the webhook refuses", |_| receiver.requests() > before).await;
    daemon.stop().await;

    receiver.always(None);
    let expected = deliverable(&simulator, 0);
    run_to_the_end(&setup, &receiver, &expected).await;
    assert_eq!(offsets(&receiver.delivered()), expected, "events that the sink accepted before are recorded");
}

#[tokio::test]
async fn a_hanging_sink_delays_a_stop_by_the_grace_period_at_most() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver).with("shutdown_grace", "300ms");
    receiver.always(Some(Reply::Hang));
    let mut daemon = setup.start();
    daemon.until("the webhook has a request and hangs", |_| receiver.requests() == 1).await;
    let asked = Instant::now();
    daemon.signal(Signal::TERM);
    let ended = daemon.ended().await;

    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(ended.code, Some(0), "a requested stop that loses no event");
    assert_eq!(ended.log.at("WARN").len(), 1, "{:?}", ended.log.at("WARN"));
    receiver.always(None);
    let expected = deliverable(&simulator, 0);
    run_to_the_end(&setup, &receiver, &expected).await;
    let (first, rest) = (offsets(&receiver.delivered())[0], offsets(&receiver.delivered())[1..].to_vec());
    assert_eq!(
        (first, rest),
        (expected[0], expected),
        "only the event without an answer is repeated, and no event is lost"
    );
}

#[tokio::test]
async fn a_second_signal_ends_the_daemon_at_once() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver);
    receiver.always(Some(Reply::Hang));
    let mut daemon = setup.start();
    daemon.until("the webhook has a request and hangs", |_| receiver.requests() == 1).await;
    daemon.signal(Signal::TERM);
    daemon.until_logged("stopping: finishing and recording the current batch").await;
    let asked = Instant::now();
    daemon.signal(Signal::TERM);
    let ended = daemon.ended().await;
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(ended.code, Some(1));
}

#[tokio::test]
async fn a_restart_continues_without_repeats() {
    let simulator = Simulator::start(Options { events: 30, unsigned: 0.3, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 7);
    for more in [0, 1, 0, 20] {
        simulator.publish(0, more);
        let expected = deliverable(&simulator, 0);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        daemon
            .until("everything arrives", |_| setup.lines() == expected.len() && receiver.received() == expected.len())
            .await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), expected);
        assert_eq!(offsets(&receiver.delivered()), expected);
    }
}
