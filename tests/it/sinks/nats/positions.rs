//! The position message of a lane, and streams that someone else restores, purges, limits or fills up.

use std::sync::Arc;
use std::time::Duration;

use proof::event::{EventId, EventKey};
use serde_json::{Value, json};
use sink::{Login, NatsSettings, Sink, SinkError};

use super::{batches, made, one_by_one};
use crate::sinks::streams::direct::{DirectLane, at, key, keys, offset};
use crate::sinks::streams::positions::{self, Altered, delivered, is_missing, lane_of};
use crate::support::{Nats, STREAM};

/// A duplicate window, in nanoseconds, during which the server still recognizes the message ids of the test.
const WINDOW: u64 = 120_000_000_000;

fn settings(nats: &Nats, login: Login) -> NatsSettings {
    NatsSettings {
        servers: vec![format!("nats://{}", nats.address()).parse().unwrap()],
        login,
        authorities: None,
        identity: None,
        stream: STREAM.to_owned(),
        subject: "channeld.{channel}.{type}".parse().unwrap(),
        positions: "channeld-positions".to_owned(),
        create: true,
        replicas: 1,
        timeout: Duration::from_secs(5),
    }
}

fn subject(lane: &DirectLane) -> String {
    format!("channeld-positions.{}.{}", lane.lane.channel.id, lane.lane.sink)
}

impl Altered for Nats {
    fn sink(&self) -> Arc<dyn Sink> {
        sink::nats(settings(self, Login::None)).unwrap()
    }

    async fn keys(&self, lane: &DirectLane) -> Vec<EventKey> {
        let id = lane.lane.channel.id.to_string();
        let events = self.events().await;
        let ours = events.iter().filter(|event| event.header("Channeld-Channel-Id") == id);
        let key = |event: &crate::support::Published| EventKey {
            offset: offset(event.offset()),
            id: event.header("Channeld-Event-Id").parse().ok().map(EventId),
        };
        let mut keys: Vec<_> = ours.map(key).collect();
        keys.sort_unstable();
        keys
    }

    async fn stored(&self, lane: &DirectLane) -> Option<Value> {
        self.last(&subject(lane)).await.map(|message| serde_json::from_slice(&message.body).unwrap())
    }

    async fn store(&self, lane: &DirectLane, position: Option<&Value>) {
        match position {
            Some(position) => {
                self.publish(&subject(lane), &[], position.to_string().as_bytes()).await;
            }
            None => self.purge(&subject(lane)).await,
        }
    }
}

/// Repeats the delivery until the sink is connected again. Returns the error of that delivery.
async fn outcome(lane: &mut DirectLane, events: &[EventKey]) -> SinkError {
    loop {
        let error = lane.deliver(events).await.unwrap_err().error;
        if !matches!(&error, SinkError::Unavailable { message, .. } if message.contains("cannot be reached")) {
            return error;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

macro_rules! of_both_kinds {
    ($($test:ident)*) => {$(
        #[tokio::test]
        async fn $test() {
            for stream in [batches(), one_by_one()] {
                let Some(nats) = made(stream).await else { return };
                positions::$test(&nats).await;
            }
        }
    )*};
}

of_both_kinds! {
    has_the_position_of_a_lane
    distinguishes_two_events_at_one_offset
    settles_a_pending_event_by_its_identity
    reads_the_position_of_an_older_version
    gets_nothing_without_a_position_until_an_operator_decides
    returns_an_earlier_position
    refuses_a_delivery_after_another_position
    is_not_claimed_again_by_an_overtaken_instance
}

#[tokio::test]
async fn a_restored_stream_is_refilled_from_its_own_position() {
    for stream in [batches(), one_by_one()] {
        let Some(nats) = made(stream).await else { return };
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("copy");
        let mut lane = delivered(&nats, 1..=3).await;
        nats.save(&copy);
        nats.count().await;
        let mut running = lane.restarted(nats.sink());
        running.resume().await.unwrap();
        running.deliver(&keys(4..=7)).await.unwrap();
        nats.restore(&copy);
        nats.count().await;
        // The stream is restored while the daemon runs.
        let error = outcome(&mut running, &keys(8..=8)).await;
        assert!(matches!(error, SinkError::Displaced(_)), "{error}");
        assert_eq!(nats.keys(&lane).await, keys(1..=3));
        let resumed = running.resume().await.unwrap();
        assert_eq!((resumed.position, resumed.held.len()), (at(3), 0));
        running.deliver(&keys(4..=8)).await.unwrap();
        assert_eq!(nats.keys(&lane).await, keys(1..=8));
        // The stream is restored while the daemon is stopped.
        nats.restore(&copy);
        nats.count().await;
        lane = running.restarted(nats.sink());
        assert_eq!(lane.resume().await.unwrap().position, at(3));
        lane.deliver(&keys(4..=8)).await.unwrap();
        assert_eq!(nats.keys(&lane).await, keys(1..=8));
    }
}

#[tokio::test]
async fn a_deleted_or_purged_stream_is_not_recreated_or_refilled_automatically() {
    for stream in [batches(), one_by_one()] {
        let Some(nats) = made(stream.clone()).await else { return };
        for is_deleted in [true, false] {
            let mut lane = delivered(&nats, 1..=3).await;
            let what = if is_deleted { "DELETE" } else { "PURGE" };
            nats.api(&format!("STREAM.{what}.{STREAM}"), json!({})).await;
            assert!(lane.deliver(&keys(4..=4)).await.is_err());
            for mut lane in [lane.clone(), lane.restarted(nats.sink())] {
                assert!(is_missing(&lane.resume().await.unwrap().position));
                assert!(is_missing(&lane.sink.position(&lane.lane).await.unwrap()));
            }
            let info = nats.api(&format!("STREAM.INFO.{STREAM}"), json!({})).await;
            assert_eq!(info["error"]["err_code"].as_u64().is_some(), is_deleted, "{info}");
            assert!(is_deleted || info["state"]["messages"] == 0, "{info}");
            // An operator chooses to refill the stream above offset 1.
            lane.put(Some(1));
            assert_eq!(lane.resume().await.unwrap().position, at(1));
            lane.deliver(&keys(2..=4)).await.unwrap();
            assert_eq!(nats.keys(&lane).await, keys(2..=4));
            nats.api(&format!("STREAM.DELETE.{STREAM}"), json!({})).await;
            nats.make(stream.clone()).await;
        }
    }
}

#[tokio::test]
async fn events_deleted_by_a_consumer_or_a_limit_are_not_published_again() {
    for stream in [batches(), one_by_one()] {
        let Some(nats) = made(stream).await else { return };
        let lane = delivered(&nats, 1..=3).await;
        lane.deliver_unrecorded(&keys(4..=5)).await.unwrap();
        nats.purge("channeld.>").await;
        let mut lane = lane.restarted(nats.sink());
        let resumed = lane.resume().await.unwrap();
        assert_eq!((resumed.position, resumed.held), (at(5), keys(4..=5)));
        lane.deliver(&keys(4..=6)).await.unwrap();
        assert_eq!(nats.keys(&lane).await, keys(6..=6));
        // They are published again if an operator moves the cursor back.
        lane.put(None);
        lane.resume().await.unwrap();
        lane.deliver(&keys(1..=7)).await.unwrap();
        assert_eq!(nats.keys(&lane).await, keys(1..=7));
    }
}

#[tokio::test]
async fn events_on_an_earlier_subject_are_not_published_again() {
    for stream in [batches(), one_by_one()] {
        let Some(nats) = made(stream).await else { return };
        let mut lane = delivered(&nats, 1..=3).await;
        let subject = "channeld.new.{channel}.{type}".parse().unwrap();
        let other = sink::nats(NatsSettings { subject, ..settings(&nats, Login::None) }).unwrap();
        for (sink, last) in [(other, 5), (nats.sink(), 7)] {
            lane = lane.restarted(sink);
            // An operator moves the cursor back.
            lane.put(None);
            lane.resume().await.unwrap();
            lane.deliver(&keys(1..=last)).await.unwrap();
            assert_eq!(nats.keys(&lane).await, keys(1..=last));
        }
    }
}

#[tokio::test]
async fn a_position_deleted_by_stream_limits_is_rebuilt_from_the_cursor() {
    let Some(nats) = made(json!({"max_msgs": 5, "discard": "old"})).await else { return };
    let mut quiet = delivered(&nats, 1..=3).await;
    delivered(&nats, 1..=9).await;
    assert_eq!(nats.stored(&quiet).await, None);
    quiet = quiet.restarted(nats.sink());
    assert_eq!(quiet.resume().await.unwrap().position, at(3));
    quiet.deliver(&keys(4..=4)).await.unwrap();
    assert_eq!(nats.keys(&quiet).await, keys(4..=4));
    // A stream that was deleted and created again with such limits has deleted nothing yet, so the limits do not
    // explain the missing position.
    nats.api(&format!("STREAM.DELETE.{STREAM}"), json!({})).await;
    nats.make(json!({"max_msgs": 5, "discard": "old"})).await;
    assert!(is_missing(&quiet.restarted(nats.sink()).resume().await.unwrap().position));
}

/// Publishes messages like the first part of a batch, as if the server had stored only that part.
async fn keep_part(nats: &Nats, lane: &DirectLane, events: &[EventKey]) {
    for event in events {
        let (id, channel) = (event.id.unwrap(), lane.lane.channel.id);
        let headers = [
            ("Nats-Msg-Id", format!("{channel}:{}:{id}", event.offset)),
            ("Channeld-Channel-Id", channel.to_string()),
            ("Channeld-Offset", event.offset.to_string()),
            ("Channeld-Sink", lane.lane.sink.to_string()),
            ("Channeld-Event-Id", id.to_string()),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value));
        nats.publish("channeld.c0.wallet.status", &headers, b"{}").await;
    }
}

#[tokio::test]
async fn a_partly_stored_batch_is_not_published_again() {
    let Some(nats) = made(json!({"duplicate_window": WINDOW})).await else { return };
    // The server still recognizes the message ids if the delivery is repeated at once.
    let mut lane = delivered(&nats, 1..=3).await;
    keep_part(&nats, &lane, &keys(4..=6)).await;
    lane.deliver(&keys(4..=9)).await.unwrap();
    assert_eq!(nats.keys(&lane).await, keys(1..=9));
    assert_eq!(lane.sink.position(&lane.lane).await.unwrap(), at(9));
    // After a restart the sink finds the stored events itself, even if the server does not recognize their ids any
    // more.
    keep_part(&nats, &lane, &keys(10..=12)).await;
    nats.change(json!({"duplicate_window": 100_000_000})).await;
    let mut lane = lane.restarted(nats.sink());
    assert_eq!(lane.resume().await.unwrap().held, keys(10..=12));
    lane.deliver(&keys(10..=14)).await.unwrap();
    assert_eq!(nats.keys(&lane).await, keys(1..=14));
}

#[tokio::test]
async fn an_id_known_from_another_lane_is_still_published() {
    for stream in [batches(), one_by_one()] {
        let mut stream = stream;
        stream["duplicate_window"] = json!(WINDOW);
        let Some(nats) = made(stream).await else { return };
        let mut lane = lane_of(&nats);
        lane.resume().await.unwrap();
        let mut other = DirectLane { lane: lane.lane.clone(), ..lane_of(&nats) };
        other.lane.sink = "other".into();
        other.resume().await.unwrap();
        other.deliver(&keys(1..=3)).await.unwrap();
        lane.deliver(&keys(1..=4)).await.unwrap();
        let twice = [key(1, 1), key(1, 1), key(2, 2), key(2, 2), key(3, 3), key(3, 3), key(4, 4)];
        assert_eq!(nats.keys(&lane).await, twice);
    }
}

/// The storage of the account fills up within a batch. NATS 2.15 then stores the first events of the batch and refuses
/// the rest.
#[tokio::test]
async fn an_account_that_fills_up_within_a_batch_has_each_event_once() {
    let lines = "accounts { A { jetstream: { max_file: 300000, max_mem: 0 }, users: [{ user: me, password: it }] } }";
    let Some(nats) = Nats::start_with(lines, json!({"user": "me", "pass": "it"})) else { return };
    nats.make(json!({"duplicate_window": WINDOW})).await;
    let login = Login::Password("me".to_owned(), net::secret::Secret::new("it"));
    let filler = json!({"name": "filler", "subjects": ["filler"], "storage": "file"});
    nats.api("STREAM.CREATE.filler", filler).await;
    let mut lane = DirectLane::new(sink::nats(settings(&nats, login)).unwrap(), "direct");
    lane.resume().await.unwrap();
    lane.deliver(&keys(1..=3)).await.unwrap();
    nats.publish("filler", &[], &vec![b'x'; 100_000]).await;
    assert!(lane.deliver(&keys(4..=300)).await.is_err());
    let kept = nats.keys(&lane).await.len();
    assert!((4..300).contains(&kept), "{kept}");
    nats.api("STREAM.PURGE.filler", json!({})).await;
    let resumed = lane.resume().await.unwrap();
    assert_eq!((resumed.position, resumed.held.len()), (at(3), kept - 3));
    lane.deliver(&keys(4..=300)).await.unwrap();
    assert_eq!(nats.keys(&lane).await, keys(1..=300));
}
