//! A single instance with its state in PostgreSQL continues from its cursor after a kill, as with sled. Rows that it cannot
//! read stop nothing but their channel.

use std::collections::BTreeSet;

use super::{instance, offsets, service, until, until_status};
use crate::support::{Database, Receiver, deliverable};

#[tokio::test]
async fn a_killed_instance_continues_from_its_cursor() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 200).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver);
    let expected: BTreeSet<_> = deliverable(&simulator, 0).into_iter().collect();

    let mut daemon = setup.start();
    daemon.until("some events are delivered", |_| receiver.received() > 40).await;
    daemon.kill().await;
    let before = receiver.received();
    let mut daemon = setup.start();
    let all = |receiver: &Receiver| offsets(receiver, "c0").into_iter().collect::<BTreeSet<_>>() == expected;
    daemon.until("all events are delivered", |_| all(&receiver)).await;
    daemon.stop().await;
    assert!(
        receiver.received() <= expected.len() + 8,
        "{} of {}, {before} before",
        receiver.received(),
        expected.len()
    );
    let owned = database.number("select count(*) from channeld.channels where owner is not null").await;
    let instances = database.number("select count(*) from channeld.instances").await;
    assert_eq!((owned, instances), (0, 1), "all leases are released, and the killed instance is recorded as dead");
}

#[tokio::test]
async fn an_unreadable_row_stops_only_its_channel_and_unknown_kinds_are_kept() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(3, 20).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver);
    let is_whole = |channel: usize| offsets(&receiver, &format!("c{channel}")) == deliverable(&simulator, channel);
    let mut daemon = setup.start();
    daemon.until("the backlog is delivered", |_| (0..3).all(is_whole)).await;
    daemon.stop().await;

    let [broken, other, third] = [0, 1, 2].map(|channel| simulator.announcement().channels[channel]);
    database
        .change(&format!(
            "update channeld.entries set value = '\\xff'::bytea || value where channel_id = '{broken}' and kind = 'cursors';
             insert into channeld.entries values ('{other}', 'of-tomorrow', '\\x01', '\\x02');
             update channeld.channels set held_back = '\\xff' where channel_id = '{third}';
             insert into channeld.instances (id, name, heartbeat, lease, configuration, channels) values
             (gen_random_uuid(), 'odd', clock_timestamp(), interval '1 hour', '\\x01', array[null::uuid]);"
        ))
        .await;
    (0..3).for_each(|channel| simulator.publish(channel, 5));
    let mut daemon = setup.start();
    daemon.until("the other channels continue", |_| is_whole(1) && is_whole(2)).await;
    let status = until_status(&setup, "the unreadable rows are reported", |status| {
        let reasons = status["not_ready"].as_array().unwrap().iter();
        let is_about = |name: Option<&str>| {
            reasons.clone().any(|reason| reason["kind"] == "state_not_readable" && reason["channel"].as_str() == name)
        };
        is_about(Some("c0")) && is_about(None)
    })
    .await;
    assert!(status.to_string().contains("the entry `cursors` of the channel in the state"), "{status}");
    daemon.until_logged("the state of the channel cannot be read: the channel is tried again").await;
    daemon.until_logged("a row of the state's database cannot be read").await;
    let held_back = "select count(*) from channeld.channels where held_back is not null";
    until(&database, "the owner has replaced the unreadable value", held_back, &[0]).await;

    let repair = "update channeld.entries set value = substring(value from 2) where kind = 'cursors' and get_byte(value, 0) = 255";
    database.change(repair).await;
    daemon.until("the repaired channel continues", |_| is_whole(0)).await;
    daemon.stop().await;
    let kept = "select count(*) from channeld.entries where kind = 'of-tomorrow' and key = '\\x01' and value = '\\x02'";
    assert_eq!(database.number(kept).await, 1);
}
