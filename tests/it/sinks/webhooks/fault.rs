//! An endpoint that refuses an event may refuse only this event, or every event. Only in the first case does the event become
//! a dead letter, whatever the status is.

use serde_json::Value;
use simulator::Simulator;

use super::{service, until_lane_is, webhook_only};
use crate::support::{Daemon, LONGEST_WAIT, Receiver, Reply, Setup, deliverable, offsets, records};

const EVENTS: u64 = 12;

/// The first event, two events in a row, and the last event.
const REFUSED: [i64; 4] = [1, 6, 7, 12];

/// How a sink sends events.
const MODES: [(&str, &str, i64); 3] =
    [("one", "concurrency", 1), ("several", "concurrency", 4), ("batch", "batch_events", 10)];

/// An endpoint of its own for each mode and status, with the name of its sink.
struct Endpoint {
    sink: String,
    status: u16,
    receiver: Receiver,
}

async fn endpoints(statuses: &[u16]) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for status in statuses {
        for (mode, ..) in MODES {
            let receiver = Receiver::start().await;
            endpoints.push(Endpoint { sink: format!("{mode}-{status}"), status: *status, receiver });
        }
    }
    endpoints
}

/// A channel with a sink for each endpoint. An event that is refused for a second may become a dead letter.
fn into_all(simulator: &Simulator, endpoints: &[Endpoint]) -> Setup {
    let mut setup = Setup::reading(simulator);
    for Endpoint { sink, receiver, .. } in endpoints {
        setup.define_webhook(sink, receiver);
        let (_, key, value) = MODES.into_iter().find(|(mode, ..)| sink.starts_with(mode)).unwrap();
        setup.set(&format!("sinks.{sink}.{key}"), value);
        setup.set(&format!("sinks.{sink}.give_up_after"), "1s");
        setup.set(&format!("sinks.{sink}.retry_wait"), "50ms");
        setup.set(&format!("sinks.{sink}.retry_wait_max"), "300ms");
    }
    let sinks: Vec<_> = endpoints.iter().map(|endpoint| endpoint.sink.as_str()).collect();
    setup.remove("sinks.file");
    setup.with("channels.c0.sinks", sinks)
}

async fn dead_letters(setup: &Setup, sink: &str) -> Vec<Value> {
    setup.tell(&["dead-letters", "list", "--json", "c0", "--sink", sink]).await.each("offset")
}

/// The state of each lane, by the name of its sink.
async fn lanes(setup: &Setup) -> Vec<Value> {
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    report["channels"][0]["lanes"].as_array().unwrap().clone()
}

async fn until_arrived(daemon: &mut Daemon, endpoints: &[Endpoint], count: usize) {
    daemon
        .until("the accepted events arrive", |_| {
            endpoints.iter().all(|endpoint| offsets(&endpoint.receiver.delivered()).len() >= count)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_the_endpoint_refuses_become_dead_letters_wherever_they_are() {
    let simulator = service(EVENTS).await;
    let all = records(&simulator, 0).await;
    let id = |offset| {
        let event: Value = serde_json::from_str(&all[offset]).unwrap();
        event["event_id"].as_str().unwrap().to_owned()
    };
    let endpoints = endpoints(&[400, 401, 403, 404, 405, 406, 409, 415, 422, 429, 500, 503]).await;
    for Endpoint { receiver, status, .. } in &endpoints {
        let refused = REFUSED.each_ref().map(id);
        receiver.refuse_with(*status, move |body| refused.iter().any(|id| body.contains(id)));
    }
    let setup = into_all(&simulator, &endpoints);
    let mut daemon = setup.start();
    let accepted: Vec<_> = deliverable(&simulator, 0).into_iter().filter(|offset| !REFUSED.contains(offset)).collect();
    until_arrived(&mut daemon, &endpoints, accepted.len()).await;
    for Endpoint { sink, receiver, status } in &endpoints {
        let began = std::time::Instant::now();
        while dead_letters(&setup, sink).await != REFUSED.map(Value::from) {
            assert!(began.elapsed() < LONGEST_WAIT, "{sink}: {:?}", dead_letters(&setup, sink).await);
            daemon.until("the daemon runs", |_| true).await;
        }
        let letters = setup.tell(&["dead-letters", "list", "--json", "c0", "--sink", sink]).await;
        assert!(letters.each("reason").iter().all(|reason| reason.to_string().contains(&format!("answered {status}"))));
        let mut delivered = offsets(&receiver.delivered());
        if sink.starts_with("several") {
            delivered.sort_unstable();
        }
        assert_eq!(delivered, accepted, "{sink}: each event once, in order");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_refuses_every_event_blocks_its_lane_and_makes_no_dead_letter() {
    let simulator = service(EVENTS).await;
    let endpoints = endpoints(&[302, 400, 401, 403, 404, 405, 406, 408, 415, 429, 500, 503, 504]).await;
    for Endpoint { receiver, status, .. } in &endpoints {
        receiver.always(Some(Reply::Refuse(*status, None)));
    }
    let setup = into_all(&simulator, &endpoints);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let began = std::time::Instant::now();
    loop {
        let lanes = lanes(&setup).await;
        let is_known = |lane: &&Value| {
            let message = lane["error"]["message"].as_str().unwrap_or_default();
            lane["state"] == "blocked" && message.ends_with("; every event is refused")
        };
        if lanes.iter().filter(is_known).count() == endpoints.len() {
            break;
        }
        assert!(began.elapsed() < LONGEST_WAIT, "{lanes:#?}");
        daemon.until("the daemon runs", |_| true).await;
    }
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());

    // If an endpoint recovered between the offers of two events, it would seem to refuse only the first one.
    daemon.stop().await;
    for Endpoint { receiver, .. } in &endpoints {
        receiver.always(None);
    }
    let mut daemon = setup.start();
    let all = deliverable(&simulator, 0);
    until_arrived(&mut daemon, &endpoints, all.len()).await;
    daemon.stop().await;
    for Endpoint { sink, receiver, .. } in &endpoints {
        let mut delivered = offsets(&receiver.delivered());
        if sink.starts_with("several") {
            delivered.sort_unstable();
        }
        assert_eq!(delivered, all, "{sink}: each event once, in order");
    }
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());
}

#[tokio::test]
async fn of_events_that_wait_alone_at_an_endpoint_that_refuses_all_only_the_first_becomes_a_dead_letter() {
    let simulator = service(1).await;
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(404, None)));
    let setup = webhook_only(&simulator, &receiver)
        .with("sinks.hook.give_up_after", "1s")
        .with("sinks.hook.retry_wait_max", "300ms");
    let mut daemon = setup.start();
    daemon.until("the event is a dead letter", |daemon| daemon.log().0.contains("a dead letter now")).await;
    simulator.publish(0, 1);
    let refused = |lane: &Value| lane["error"]["message"] == "answered 404; every event is refused";
    let began = std::time::Instant::now();
    while !refused(&until_lane_is(&setup, &mut daemon, "hook", "blocked").await) {
        assert!(began.elapsed() < LONGEST_WAIT);
    }
    assert_eq!(dead_letters(&setup, "hook").await, [1]);
    receiver.always(None);
    daemon.until("the second event arrives", |_| receiver.received() == 1).await;

    // The endpoint has accepted an event, so the next refusal is perhaps the fault of its event.
    receiver.always(Some(Reply::Refuse(404, None)));
    simulator.publish(0, 1);
    daemon
        .until("another event is a dead letter", |daemon| daemon.log().0.matches("a dead letter now").count() == 2)
        .await;
    daemon.stop().await;
    assert_eq!(dead_letters(&setup, "hook").await, [1, 3]);
}

#[tokio::test]
async fn a_sink_that_refuses_one_event_after_another_is_giving_up_until_it_accepts_one() {
    let simulator = service(2).await;
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(422, None)));
    let setup = webhook_only(&simulator, &receiver)
        .with("sinks.hook.give_up_after", "1s")
        .with("sinks.hook.retry_wait_max", "300ms");
    let mut daemon = setup.start();
    daemon.until("two dead letters", |daemon| daemon.log().0.matches("a dead letter now").count() == 2).await;
    simulator.publish(0, 1);
    let lane = until_lane_is(&setup, &mut daemon, "hook", "giving_up").await;
    assert!(lane["condition"] == "sink_giving_up" && lane["dead_letters_in_a_row"].as_u64() >= Some(2), "{lane:#}");
    let text = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(text.contains("are dead letters: answered 422") && text.contains("giving up"), "{text}");

    receiver.always(None);
    simulator.publish(0, 1);
    let lane = until_lane_is(&setup, &mut daemon, "hook", "ok").await;
    assert_eq!(lane["dead_letters_in_a_row"], 0, "{lane:#}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_asks_for_a_wait_makes_no_dead_letter() {
    let simulator = service(3).await;
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(503, Some(1))));
    let setup = webhook_only(&simulator, &receiver).with("sinks.hook.give_up_after", "1s");
    let mut daemon = setup.start();
    daemon.until("the endpoint has asked for several waits", |_| receiver.requests() >= 4).await;
    receiver.always(None);
    daemon.until("everything arrives", |_| receiver.received() == 3).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
    assert_eq!(dead_letters(&setup, "hook").await, Vec::<Value>::new());
}
