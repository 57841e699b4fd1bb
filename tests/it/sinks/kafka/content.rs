//! Events may contain any bytes and have any size. An event that the topic does not accept does not affect the others.

use proof::event::ChannelId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::assert_whole;
use crate::sinks::nats::content::notices;
use crate::sinks::streams::proved;
use crate::support::{Broker, Line, Record, Scripted, Setup, Topic, until_count};

/// `max.message.bytes` of the test topic.
const LARGEST: usize = 64 * 1024;

fn setup(service: &Scripted, topic: &Topic) -> Setup {
    let setup = Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))]);
    setup.producing(1, topic, &topic.broker.address())
}

#[tokio::test]
async fn every_type_of_event_is_produced_under_its_subject_or_type() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    topic.make(1, &[]);
    let long = "long.".repeat(2_000);
    let types = ["wallet.status", "a b", "", "ünïcode", "new\r\nline", "\u{0}", &long];
    let service = notices(&types, |_| 10).await;
    let setup = setup(&service, &topic);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(types.len()).await;
    daemon.stop().await;

    let events = topic.all();
    let offsets: Vec<_> = events.iter().map(Record::offset).collect();
    assert_eq!(offsets, (1..=7).collect::<Vec<_>>());
    for (event, kind) in events.iter().zip(types).skip(1) {
        assert_eq!(event.key.as_deref(), Some(kind));
        let record: Value = serde_json::from_str(event.body.as_deref().unwrap()).unwrap();
        assert_eq!((&record["type"], &record["offset"]), (&json!(kind), &json!(event.offset())));
    }
    let id = ChannelId(Uuid::from_u128(1)).to_string();
    assert_eq!(events[0].key.as_deref(), Some(&*format!("wallet/{}", Uuid::from_u128(1))));
    let expected = [
        ("Content-Type", "application/json"),
        ("Channeld-Channel-Id", &id),
        ("Channeld-Offset", "1"),
        ("Channeld-Sink", "log"),
        ("Channeld-Event-Id", &Uuid::from_u128(1).to_string()),
        ("Channeld-Verification", "unsigned"),
    ];
    let expected = expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(events[0].headers, expected);
}

/// The error message in the status of the lane.
async fn reason(setup: &Setup) -> String {
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    status["channels"][0]["lanes"][0]["error"]["message"].as_str().unwrap_or_default().to_owned()
}

/// The numbers in an error message.
fn sizes(reason: &str) -> Vec<usize> {
    reason.split(' ').filter_map(|word| word.parse().ok()).collect()
}

#[tokio::test]
async fn an_event_that_is_too_large_blocks_and_becomes_a_dead_letter_alone() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    topic.make(1, &[&format!("max.message.bytes={LARGEST}")]);
    let service = notices(&["wallet.status"; 5], |offset| if offset == 3 { 2 * LARGEST } else { 1_000 }).await;
    let setup = setup(&service, &topic);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    daemon.until_logged("sink refused again").await;
    let reason = reason(&setup).await;
    let sizes = sizes(&reason);
    assert!(
        reason.contains("max.message.bytes") && sizes[0] > 2 * LARGEST && sizes[1] == LARGEST,
        "the message contains both sizes: {reason}"
    );
    topic.until_count(2).await;
    assert_eq!(topic.offsets(), [1, 2], "the events after the refused one wait");
    daemon.stop().await;

    let setup = setup.with("sinks.log.give_up_after", "1s");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(4).await;
    assert_eq!(setup.tell(&["dead-letters", "list", "--json"]).await.each("offset"), [3]);
    daemon.stop().await;
    assert_eq!(topic.offsets(), [1, 2, 4, 5]);
}

#[tokio::test]
async fn lowering_and_raising_a_limit_during_delivery_loses_nothing() {
    let Some(broker) = Broker::shared() else { return };
    let (topic, simulator) = (broker.topic(), proved(10).await);
    topic.make(1, &[]);
    // Every event exceeds the lower limit, so none of them becomes a dead letter.
    let setup = super::setup(&simulator, &topic).with("sinks.log.give_up_after", "1ms");
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    topic.until_count(10).await;
    topic.alter(&["max.message.bytes=1000"]);
    simulator.publish(0, 20);
    daemon.until_logged("sink refused again").await;
    let reason = reason(&setup).await;
    assert!(sizes(&reason)[0] > 1_000 && sizes(&reason)[1] == 1_000, "the message contains both sizes: {reason}");
    assert!(reason.contains("every event is refused"), "{reason}");
    assert_eq!(topic.count(), 10);
    topic.alter(&["max.message.bytes=20000"]);
    topic.until_count(30).await;
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event became a dead letter");
    daemon.stop().await;
    assert_whole(&topic, &simulator, &[]);
}

#[tokio::test]
async fn records_that_are_too_old_for_the_broker_block_the_lane_and_are_not_lost() {
    let Some((topic, relay)) = super::relayed().await else { return };
    let simulator = proved(10).await;
    // The library gives each record the time of this machine. On a slow line, the broker's clock is later than that, as if the
    // clocks differed.
    topic.make(1, &["message.timestamp.before.max.ms=100"]);
    let setup =
        Setup::reading(&simulator).producing(1, &topic, &relay.address()).with("sinks.log.give_up_after", "1ms");
    let mut daemon = setup.start();
    topic.until_count(10).await;
    relay.becomes(Line::Slow);
    simulator.publish(0, 10);
    daemon.until_logged("sink refused: its events wait and will be offered again").await;
    // On a busy machine, an earlier refusal can be a timeout.
    let clocks = "the clocks of this machine and of the brokers differ";
    until_count(1, async || usize::from(reason(&setup).await.contains(clocks))).await;
    assert_eq!(topic.count(), 10);
    relay.becomes(Line::Good);
    topic.until_count(20).await;
    assert!(setup.tell(&["dead-letters", "list", "--json"]).await.json().is_empty(), "no event became a dead letter");
    daemon.stop().await;
    assert_whole(&topic, &simulator, &[]);
}
