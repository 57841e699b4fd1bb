//! The position record of a lane, and topics that someone else deletes or restores.

use std::sync::Arc;
use std::time::Duration;

use proof::event::{EventId, EventKey};
use serde_json::Value;
use sink::{KafkaSettings, Position, Security, Sink, kafka};

use crate::sinks::streams::direct::{DirectLane, at, keys, offset};
use crate::sinks::streams::positions::{self, Altered, delivered, is_missing};
use crate::support::{Broker, Record, Topic};

fn record_key(topic: &Topic, lane: &DirectLane) -> String {
    format!("{}.{}.{}", topic.name, lane.lane.sink, lane.lane.channel.id)
}

impl Altered for Topic {
    fn sink(&self) -> Arc<dyn Sink> {
        let settings = KafkaSettings {
            brokers: vec![self.broker.address().to_string()],
            security: Security::default(),
            topic: self.name.clone(),
            positions_topic: self.positions(),
            transactional_id: self.name.clone(),
            create: true,
            partitions: 2,
            replicas: 0,
            timeout: Duration::from_secs(5),
        };
        kafka(settings).unwrap()
    }

    async fn keys(&self, lane: &DirectLane) -> Vec<EventKey> {
        let id = lane.lane.channel.id.to_string();
        let records = self.all();
        let ours = records.iter().filter(|record| record.headers["Channeld-Channel-Id"] == id);
        let key = |record: &Record| EventKey {
            offset: offset(record.offset()),
            id: record.headers.get("Channeld-Event-Id").and_then(|id| id.parse().ok()).map(EventId),
        };
        let mut keys: Vec<_> = ours.map(key).collect();
        keys.sort_unstable();
        keys
    }

    async fn stored(&self, lane: &DirectLane) -> Option<Value> {
        let key = record_key(self, lane);
        let records = self.all_positions();
        let last = records.iter().rfind(|record| record.key.as_deref() == Some(&*key))?;
        last.body.as_ref().map(|body| serde_json::from_str(body).unwrap())
    }

    async fn store(&self, lane: &DirectLane, position: Option<&Value>) {
        self.put_position(&record_key(self, lane), position.map(Value::to_string).as_deref());
    }
}

macro_rules! of_a_topic {
    ($($test:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            let Some(broker) = Broker::shared() else { return };
            positions::$test(&broker.topic()).await;
        }
    )*};
}

of_a_topic! {
    has_the_position_of_a_lane
    distinguishes_two_events_at_one_offset
    settles_a_pending_event_by_its_identity
    reads_the_position_of_an_older_version
    gets_nothing_without_a_position_until_an_operator_decides
    refuses_a_delivery_after_another_position
    is_not_claimed_again_by_an_overtaken_instance
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_positions_topic_reports_the_earlier_position() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    let mut lane = delivered(&topic, 1..=3).await;
    let earlier = topic.stored(&lane).await.unwrap();
    lane.deliver(&keys(4..=6)).await.unwrap();
    topic.store(&lane, Some(&earlier)).await;
    // The earlier position is noticed in the same process and after a restart.
    assert_eq!(lane.resume().await.unwrap().position, at(3));
    let mut lane = lane.restarted(topic.sink());
    assert_eq!(lane.resume().await.unwrap().position, at(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_positions_topic_is_noticed_while_the_daemon_runs() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    let mut lane = delivered(&topic, 1..=3).await;
    lane.deliver(&keys(4..=6)).await.unwrap();
    topic.delete_positions();
    topic.make_positions(&["cleanup.policy=compact"]);
    let resumed = loop {
        // The broker reports the deletion of the old topic after a short delay.
        match lane.resume().await {
            Ok(resumed) => break resumed,
            Err(error) => println!("{error}"),
        }
    };
    assert!(is_missing(&resumed.position), "{resumed:?}");
    assert!(lane.deliver(&keys(7..=7)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_or_recreated_events_topic_is_noticed() {
    let Some(broker) = Broker::shared() else { return };
    for is_made in [false, true] {
        let topic = broker.topic();
        let mut lane = delivered(&topic, 1..=3).await;
        topic.delete();
        if is_made {
            topic.make(2, &[]);
        }
        let mut other = lane.restarted(topic.sink());
        let resumed = loop {
            match other.resume().await {
                Ok(resumed) => break resumed,
                Err(error) => println!("{error}"),
            }
        };
        assert!(is_missing(&resumed.position), "{resumed:?}");
        assert_eq!(
            topic.settings(&topic.name).contains("\"partitions\": 0"),
            !is_made,
            "the sink does not create the topic again"
        );
        // An operator chooses to refill the topic.
        lane = other;
        lane.put(None);
        assert_eq!(lane.resume().await.unwrap().position, Position::At(None));
        lane.deliver(&keys(1..=4)).await.unwrap();
        assert_eq!(topic.keys(&lane).await, keys(1..=4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_events_topic_recreated_while_in_use_gets_nothing_until_an_operator_decides() {
    let Some(broker) = Broker::shared() else { return };
    let topic = broker.topic();
    let mut lane = delivered(&topic, 1..=3).await;
    lane.deliver(&keys(4..=6)).await.unwrap();
    topic.delete();
    topic.make(2, &[]);
    let resumed = loop {
        let error = lane.deliver(&keys(7..=9)).await.expect_err("the topic has lost events").error;
        println!("{error}");
        if let Ok(resumed) = lane.resume().await
            && is_missing(&resumed.position)
        {
            break resumed;
        }
    };
    assert!(is_missing(&resumed.position));
    assert!(topic.keys(&lane).await.is_empty());
}
