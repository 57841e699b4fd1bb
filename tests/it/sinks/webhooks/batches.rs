//! If the endpoint refuses a batch, it still receives every event that it would accept.

use super::{Receiver, Setup, service, webhook_only};
use crate::support::{deliverable, offsets, records};

/// The largest body that Express accepts by default, in bytes.
const EXPRESS: usize = 100 * 1024;

const HALVED: &str = "endpoint refused a batch because of its content: offering it in halves";
const TOO_LARGE: &str =
    "endpoint refused a batch because of its size: using smaller ones from now on; lower batch_bytes";

/// Batches of ten events. After one second of refusals, the first event of a batch becomes a dead letter.
async fn giving_up_soon(receiver: &Receiver) -> (simulator::Simulator, Setup) {
    let simulator = service(30).await;
    let setup = webhook_only(&simulator, receiver).with("sinks.hook.batch_events", 10);
    let setup = setup.with("sinks.hook.give_up_after", "1s");
    (simulator, setup)
}

#[tokio::test]
async fn only_the_refused_event_of_a_batch_becomes_a_dead_letter() {
    let receiver = Receiver::start().await;
    let (simulator, setup) = giving_up_soon(&receiver).await;
    let event: serde_json::Value = serde_json::from_str(&records(&simulator, 0).await[&14]).unwrap();
    let poison = event["event_id"].as_str().unwrap().to_owned();
    receiver.refuse_with(422, move |body| body.contains(&poison));
    let mut daemon = setup.start();
    daemon.until("the other events arrive", |_| offsets(&receiver.delivered()).len() >= 29).await;
    let log = daemon.stop().await;

    let expected: Vec<_> = deliverable(&simulator, 0).into_iter().filter(|offset| *offset != 14).collect();
    assert_eq!(offsets(&receiver.delivered()), expected, "in order, each once");
    let letters = setup.tell(&["dead-letters", "list", "--json"]).await;
    assert_eq!((letters.each("offset"), letters.each("reason")), (vec![14.into()], vec!["answered 422".into()]));
    assert!(!log.lines(HALVED).is_empty());
}

#[tokio::test]
async fn a_batch_too_large_for_the_endpoint_is_split() {
    let receiver = Receiver::start().await;
    let (simulator, setup) = giving_up_soon(&receiver).await;
    let largest = records(&simulator, 0).await.into_values().map(|raw| raw.len()).max().unwrap();
    // Every single event is below the limit, but only few batches are.
    let limit = 2 * largest + 1024;
    receiver.refuse_with(413, move |body| body.len() > limit);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| offsets(&receiver.delivered()).len() >= 30).await;
    let log = daemon.stop().await;

    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0), "in order, each once");
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty());
    let refused = receiver.requests() - receiver.received();
    assert!(refused <= 4, "the sink remembers which size is too large: {refused} requests refused");
    let said = &log.lines(TOO_LARGE)[0];
    assert_eq!((&said["sink"], &said["batch_bytes"]), (&"hook".into(), &(1024 * 1024).into()), "{said}");
}

#[tokio::test]
async fn one_event_that_is_too_large_is_refused_with_both_sizes() {
    let receiver = Receiver::start().await;
    let (_simulator, setup) = giving_up_soon(&receiver).await;
    receiver.refuse_with(413, |_| true);
    let mut daemon = setup.start();
    daemon
        .until("the event becomes a dead letter", |daemon| daemon.log().0.contains("the event is a dead letter now"))
        .await;
    daemon.stop().await;
    let letters = setup.tell(&["dead-letters", "list", "--json"]).await;
    let reason = letters.each("reason")[0].as_str().unwrap().to_owned();
    assert!(
        reason.starts_with("answered 413: the event alone has ") && reason.contains("(batch_bytes is 1048576)"),
        "{reason}"
    );
}

#[tokio::test]
async fn the_runbooks_batch_recipe_works_with_the_default_limit_of_express() {
    let runbook = include_str!("../../../../deploy/RUNBOOK.md");
    let recipe = runbook.split("\n## ").find(|section| section.starts_with("ChanneldLagging\n")).unwrap();
    let value = |key: &str| {
        let (_, rest) = recipe.split_once(&format!("`{key} = ")).unwrap_or_else(|| panic!("no {key} in: {recipe}"));
        rest.split_once('`').unwrap().0.trim_matches('"').to_owned()
    };
    let simulator = service(400).await;
    let receiver = Receiver::start().await;
    receiver.refuse_with(413, |body| body.len() > EXPRESS);
    let events: usize = value("batch_events").parse().unwrap();
    let setup = webhook_only(&simulator, &receiver)
        .with("sinks.hook.batch_events", events)
        .with("sinks.hook.batch_bytes", value("batch_bytes"));
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| offsets(&receiver.delivered()).len() >= 400).await;
    daemon.stop().await;

    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
    assert_eq!(receiver.requests(), receiver.received(), "no request was refused");
    assert!(receiver.requests() < 400 / 10, "{} requests", receiver.requests());
}
