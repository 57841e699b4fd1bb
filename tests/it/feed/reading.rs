//! Clients that store their own position miss no event, and receive none twice.

use std::time::{Duration, Instant};

use reqwest::StatusCode;
use simulator::{Honesty, LateProofs, Options};

use super::{FeedClient, FeedEvent, Served, WAIT, assert_positions, assert_problem, sorted_offsets, with_each_table};
use crate::support::deliverable;

/// Longer than any test: a proof arrives only when the test releases it.
pub(super) const NEVER: Duration = Duration::from_secs(1_000_000);

with_each_table![
    late_deliveries_have_new_positions_and_a_replay_has_none,
    a_new_event_ends_a_long_poll,
    a_deleted_position_is_gone_and_the_answer_names_the_oldest_one,
];

async fn late_deliveries_have_new_positions_and_a_replay_has_none(kind: &str) {
    let late_proofs = Some(LateProofs { share: 0.1, delay: NEVER });
    let options = Options { events: 300, unsigned: 0.1, forged: 0.1, late_proofs, ..Options::default() };
    let Some(Served { simulator, setup, database: _database, .. }) = Served::by(kind, options).await else { return };
    let pending: Vec<_> =
        simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty == Honesty::Pending).collect();
    let first = deliverable(&simulator, 0);
    assert!(!pending.is_empty() && first.len() + pending.len() < 300, "some are pending, and some are forged");

    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", first.len()).await;
    let mut read = client.read("c0", 0, 37).await;
    assert_eq!(sorted_offsets(&read), first);
    let listed = client.get("/channels").await.json();
    let id = simulator.announcement().channels[0].to_string();
    assert_eq!(listed, serde_json::json!({"channels": [{"name": "c0", "id": id, "position": first.len()}]}));

    // The proofs arrive while the daemon does not run.
    daemon.stop().await;
    for (offset, _) in &pending {
        simulator.prove(0, *offset);
    }
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    let all = deliverable(&simulator, 0);
    client.until(&mut daemon, "c0", all.len()).await;
    let late = client.read("c0", read.last().unwrap().position, 1_000).await;
    assert_eq!(sorted_offsets(&late), pending.iter().map(|(offset, _)| *offset).collect::<Vec<_>>());
    read.extend(late);
    assert_positions(&read, 1..=i64::try_from(all.len()).unwrap());
    assert_eq!(sorted_offsets(&read), all);
    let status = |event: &FeedEvent| event.event["verification"]["status"].as_str().unwrap().to_owned();
    assert!(read.iter().all(|event| ["verified", "unsigned"].contains(&&*status(event))));

    let last = simulator.offsets(0).last().unwrap().0.to_string();
    let told = setup.tell(&["replay", "--channel", "c0", "--sink", "table", "--from", "1", "--to", &last]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    // This event is delivered after the replay.
    daemon.until_logged("replay finished").await;
    simulator.publish_one(0, simulator::EventSpec::Honest(simulator::Kind::OperationConfirmed));
    client.until(&mut daemon, "c0", all.len() + 1).await;
    assert_eq!(client.read("c0", 0, 1_000).await[..all.len()], read, "a replay changes nothing");
    assert_eq!(client.newest("c0").await, i64::try_from(all.len()).unwrap() + 1);
    daemon.stop().await;
}

async fn a_new_event_ends_a_long_poll(kind: &str) {
    let Some(Served { simulator, setup, database: _database, .. }) =
        Served::by(kind, Options { events: 5, ..Options::default() }).await
    else {
        return;
    };
    let mut daemon = setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 5).await;
    let begun = Instant::now();
    let waiting = client.wait_after(5).await;
    assert!(!waiting.is_finished());
    simulator.publish(0, 1);
    let page = waiting.await.unwrap();
    assert_positions(&FeedEvent::all(&page["events"]), [6]);
    assert!(page["next"] == 6 && begun.elapsed() < WAIT, "{page}");

    // A daemon that ends answers those who wait.
    let waiting = client.wait_after(6).await;
    daemon.stop().await;
    let page = waiting.await.unwrap();
    assert!(page["next"] == 6 && page["events"].as_array().unwrap().is_empty(), "{page}");
}

#[tokio::test]
async fn an_event_whose_notification_was_lost_ends_a_long_poll() {
    let Some(served) = Served::by("postgres", Options { events: 5, ..Options::default() }).await else { return };
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 5).await;
    let waiting = client.wait_after(5).await;
    // The row of another instance, without the notification that belongs to it.
    let columns = "channel_id, channel, type, delivered, verification, record";
    let without_notification = format!(
        "begin; insert into events (event_offset, position, {columns}) \
         select event_offset + 1, 6, {columns} from events where position = 5; \
         update events_progress set position = 6; commit"
    );
    assert!(!waiting.is_finished());
    served.change(&without_notification).await;
    let page = waiting.await.unwrap();
    assert_eq!((&page["events"][0]["position"], &page["next"]), (&6.into(), &6.into()), "{page}");
    daemon.stop().await;
}

async fn a_deleted_position_is_gone_and_the_answer_names_the_oldest_one(kind: &str) {
    let Some(served) = Served::by(kind, Options { events: 20, ..Options::default() }).await else { return };
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 20).await;
    served.change("delete from events where position <= 7").await;
    for path in ["/channels/c0/events?after=6", "/channels/c0/events?after=0&wait=60s", "/channels/c0/stream?after=3"] {
        let problem = assert_problem(&client.get(path).await, StatusCode::GONE, "gone");
        assert_eq!(problem["oldest"], 8, "{path}");
    }
    daemon.until_logged("a client of the feed reads at a position whose events were deleted").await;
    assert_positions(&client.read("c0", 7, 5).await, 8..=20);
    let oldest = client.get("/channels/c0/events?limit=1").await.json();
    assert_positions(&FeedEvent::all(&oldest["events"]), [8]);

    // The positions of deleted rows are never assigned again.
    served.change("delete from events").await;
    let problem = assert_problem(&client.get("/channels/c0/events?after=19").await, StatusCode::GONE, "gone");
    assert_eq!(problem["oldest"], 21);
    served.simulator.publish(0, 1);
    let page = client.get("/channels/c0/events?after=20&wait=60s").await.json();
    assert_positions(&FeedEvent::all(&page["events"]), [21]);
    daemon.stop().await;
}
