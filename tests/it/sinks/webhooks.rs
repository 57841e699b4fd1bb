//! Webhooks in production: the answers of the endpoint, batches, and concurrent requests.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::{Options, Simulator};

use crate::support::{Daemon, Delivered, LONGEST_WAIT, Receiver, Reply, Setup, deliverable, offsets, records};

mod batches;
mod compression;
mod fault;
mod pace;
mod reach;
mod stale;
mod templates;
mod tokens;

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

fn webhook_only(simulator: &Simulator, receiver: &Receiver) -> Setup {
    let mut setup = Setup::reading(simulator).with_webhook("hook", receiver).with("channels.c0.sinks", vec!["hook"]);
    setup.remove("sinks.file");
    setup
}

/// Reads the status until the lane of this sink is in this state.
async fn until_lane_is(setup: &Setup, daemon: &mut Daemon, sink: &str, state: &str) -> Value {
    daemon.until_logged("channel started").await;
    let asked = Instant::now();
    loop {
        let report = setup.tell(&["status", "--json"]).await.json().remove(0);
        let lanes = report["channels"][0]["lanes"].as_array().unwrap();
        if let Some(lane) = lanes.iter().find(|lane| lane["sink"] == sink && lane["state"] == state) {
            return lane.clone();
        }
        assert!(asked.elapsed() < LONGEST_WAIT, "not within {LONGEST_WAIT:?}: {sink} is {state}: {report:#}");
        daemon.until("the daemon runs", |_| true).await;
    }
}

#[tokio::test]
async fn a_webhook_that_answers_410_is_not_called_until_resume_or_restart() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    receiver.reply(Reply::Slow(Duration::ZERO), 5);
    receiver.always(Some(Reply::Refuse(410, None)));
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    assert!(lane["error"]["message"].as_str().unwrap().starts_with("answered 410: it accepts no more"), "{lane}");
    assert_eq!((&lane["error"]["kind"], &lane["cursor"]), (&json!("gone"), &json!(5)));
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert!(report["reasons"][0].as_str().unwrap().starts_with("channel c0, sink hook: answered 410"), "{report}");

    receiver.always(None);
    simulator.publish(0, 5);
    daemon.until("the other sink continues", |_| setup.lines() == 25).await;
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    simulator.publish(0, 5);
    daemon.until("the other sink continues", |_| setup.lines() == 30).await;
    until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    assert_eq!(receiver.requests(), 6, "no request is sent after the 410");

    let resume = ["resume", "c0", "--sink", "hook"];
    assert_eq!(setup.tell(&resume).await.out, b"c0 sink hook: resumed\n");
    daemon.until("everything arrives", |_| receiver.received() == 30).await;
    until_lane_is(&setup, &mut daemon, "hook", "ok").await;
    assert_eq!(setup.tell(&resume).await.out, b"c0 sink hook: already resumed\n");

    receiver.always(Some(Reply::Refuse(410, None)));
    simulator.publish(0, 5);
    until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    let log = daemon.stop().await;
    assert_eq!(log.lines("sink accepts no more events: new events wait until an operator resumes the sink").len(), 2);
    receiver.always(None);
    let mut daemon = setup.start();
    daemon.until("the rest arrives", |_| receiver.received() == 35).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0), "each event exactly once");
}

#[tokio::test]
async fn a_refused_event_is_kept_and_retried_at_once_on_resume() {
    let simulator = service(10).await;
    let receiver = Receiver::start().await;
    let setup =
        webhook_only(&simulator, &receiver).with("sinks.hook.retry_wait", "1h").with("sinks.hook.retry_wait_max", "1h");
    receiver.always(Some(Reply::Refuse(422, None)));
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    assert_eq!((&lane["error"]["message"], receiver.requests()), (&json!("answered 422"), 1));
    receiver.always(None);
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0));
    daemon.until("everything arrives", |_| receiver.received() == 10).await;
    until_lane_is(&setup, &mut daemon, "hook", "ok").await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn retry_after_of_an_endpoint_is_obeyed() {
    let simulator = service(10).await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver);
    receiver.reply(Reply::Refuse(429, Some(1)), 1);
    let mut daemon = setup.start();
    daemon.until("the endpoint asks for a pause", |_| receiver.requests() == 1).await;
    let asked = Instant::now();
    daemon.until("everything arrives", |_| receiver.received() == 10).await;
    daemon.stop().await;
    let waited = receiver.arrivals()[0] - asked;
    assert!(waited > Duration::from_millis(900), "{waited:?}");
    assert_eq!((receiver.requests(), offsets(&receiver.delivered())), (11, deliverable(&simulator, 0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_survive_kills_in_order_and_a_repeat_has_the_same_id() {
    const BATCH: usize = 8;
    let simulator = service(480).await;
    let receiver = Receiver::start().await;
    // Each page repeats the last event of the previous page, so the limit of 25 makes three whole batches. A batch that
    // was not recorded before a kill therefore has the same events when it is sent again.
    let setup = webhook_only(&simulator, &receiver)
        .with("api.page_limit", 3 * BATCH + 1)
        .with("sinks.hook.batch_events", BATCH)
        .with("log.level", "info");
    // A slow answer leaves time for a kill between the delivery of a batch and its record.
    receiver.always(Some(Reply::Slow(Duration::from_millis(10))));
    for kill in 1..=5 {
        receiver.reply(Reply::Refuse(503, None), 2);
        let mut daemon = setup.start();
        daemon.until("some batches have arrived", |_| receiver.received() > 10 * kill).await;
        daemon.kill().await;
    }
    receiver.always(None);
    let expected = deliverable(&simulator, 0);
    let mut daemon = setup.start();
    let all = || offsets(&receiver.delivered()).into_iter().collect::<BTreeSet<_>>().len() == expected.len();
    daemon.until("everything arrives", |_| all()).await;
    daemon.stop().await;

    let mut ids = BTreeMap::new();
    let mut next = 0;
    for post in receiver.posts() {
        let inside = offsets(&post.delivered());
        let place = expected.iter().position(|offset| *offset == inside[0]).unwrap();
        assert_eq!(inside, expected[place..][..inside.len()], "a batch has consecutive events");
        assert!(place == next || ids.contains_key(&inside), "in order, apart from repeats: {inside:?}");
        next = place + inside.len();
        assert_eq!(ids.entry(inside).or_insert_with(|| post.id().to_owned()), post.id());
    }
    assert_eq!(ids.values().collect::<BTreeSet<_>>().len(), ids.len(), "each batch has another id");
    println!("{} repeats", receiver.received() - ids.len());
}

#[tokio::test]
async fn a_batch_waits_for_more_events_and_a_stop_does_not() {
    let simulator = service(4).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator)
        .with_webhook("hook", &receiver)
        .with("sinks.hook.batch_events", 10)
        .with("sinks.hook.batch_wait", "60s");
    let mut daemon = setup.start();
    for (lines, more) in [(4, 3), (7, 6)] {
        daemon.until("the file has all events", |_| setup.lines() == lines).await;
        assert_eq!(receiver.received(), 0, "a batch waits until it has ten events");
        simulator.publish(0, more);
    }
    daemon.until("a batch is full", |_| receiver.received() == 2).await;
    daemon.stop().await;
    let sizes: Vec<_> = receiver.posts().iter().map(|post| post.delivered().len()).collect();
    assert_eq!(sizes, [10, 3], "events that arrived with the tenth are sent without another wait");
    simulator.publish(0, 3);
    let mut daemon = setup.start();
    daemon.until("the file has the new events", |_| setup.lines() == 16).await;
    daemon.stop().await;
    assert_eq!(receiver.received(), 2, "an incomplete batch is not sent at shutdown");

    let setup = setup.with("sinks.hook.batch_wait", "50ms");
    let mut daemon = setup.start();
    daemon.until("the incomplete batch is sent after batch_wait", |_| receiver.received() == 3).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

/// The subject of an event: its watcher, wallet, operation or query. Events without one use their type.
fn subject(delivered: &Delivered) -> String {
    let event: Value = serde_json::from_str(delivered.event.get()).unwrap();
    let (about, _) = delivered.kind.split_once('.').unwrap();
    event["payload"][format!("{about}_id")].as_str().unwrap_or(&delivered.kind).to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_concurrency_a_refused_subject_delays_no_other_and_each_keeps_its_order() {
    // A page alone has more events than the sink is offered at once (8 × 4), so the next page is not joined to it.
    const PAGE: i64 = 40;
    let simulator = service(150).await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver)
        .with("api.page_limit", PAGE)
        .with("sinks.hook.concurrency", 4)
        .with("sinks.hook.retry_wait_max", "20ms");
    let raw: BTreeMap<_, Value> =
        records(&simulator, 0).await.into_iter().map(|(at, raw)| (at, serde_json::from_str(&raw).unwrap())).collect();
    let watcher = raw.values().find_map(|event| event["payload"]["watcher_id"].as_str()).unwrap().to_owned();
    let others = raw.range(..=PAGE).filter(|(_, event)| event["payload"]["watcher_id"] != watcher.as_str()).count();
    let of_watcher = watcher.clone();
    receiver.refuse(Some(Box::new(move |body| body.contains(&of_watcher))));

    let mut daemon = setup.start();
    let refused_again = || receiver.requests() > others + 5;
    daemon.until("the other events of the page arrive", |_| receiver.received() == others && refused_again()).await;
    assert!(receiver.delivered().iter().all(|delivered| subject(delivered) != watcher));
    receiver.refuse(None);
    daemon.until("everything arrives", |_| receiver.received() == 150).await;
    daemon.stop().await;

    let mut stories: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for delivered in receiver.delivered() {
        stories.entry(subject(&delivered)).or_default().push(delivered.offset);
    }
    assert!(stories.values().all(|offsets| offsets.is_sorted()), "{stories:?}");
    let mut all: Vec<_> = stories.into_values().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, deliverable(&simulator, 0), "each exactly once");
}
