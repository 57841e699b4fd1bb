//! A part of the state cannot be used: the table of proofs was dropped, the role has lost its rights on it, or another session
//! locks the row of a channel without an owner. The channels that need it wait and say so, the other channels continue, and
//! everything is delivered after the repair.

use simulator::{EventSpec, Kind};

use super::failures::locked;
use super::{instance, offsets, service, until_status};
use crate::support::{Admin, Answered, Database, Receiver, deliverable};

/// The log message about a lost lease.
const LOST: &str = "no heartbeat was accepted for too long: every channel stops until a heartbeat is accepted";

/// `fault` and `repair` are changes of the database, with the role of the instance as `{role}`. `reason` is the server's reason.
async fn unusable_proofs_are_reported_and_used_after_the_repair(fault: &str, repair: &str, reason: &str) {
    let Some(database) = Database::new().await else { return };
    let role = format!("least_of_{}", database.name);
    let (simulator, receiver) = (service(2, 10).await, Receiver::start().await);
    let mut setup = instance("only", &simulator, &database, &receiver).with_admin();
    let all =
        |channel: usize| offsets(&receiver, &format!("c{channel}")).len() >= deliverable(&simulator, channel).len();
    let mut daemon = setup.start();
    daemon.until("the backlog is delivered", |_| all(0) && all(1)).await;
    daemon.stop().await;
    database
        .change(&format!(
            "create role {role} login; grant usage on schema channeld to {role}; \
             grant select, insert, update, delete on all tables in schema channeld to {role}"
        ))
        .await;
    setup.set("state.url", database.url_as(&role));
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", |answer| answer.status == 200).await;

    database.change(&fault.replace("{role}", &role)).await;
    for _ in 0..5 {
        simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
        simulator.publish_one(1, EventSpec::Honest(Kind::WalletStatus));
    }
    let wait = "has not executed a statement on `proofs` for 1";
    let says = |answer: &Answered| [wait, reason].iter().all(|text| answer.text.contains(text));
    admin.until(&mut daemon, "/readyz", "the wait for the table is a reason", says).await;
    let of_channel = "channel c0: recording the proofs of new events";
    until_status(&setup, "the channel with new proofs says that it waits", |status| {
        let said = status["reasons"].to_string();
        assert!(!said.contains("channel c1"), "the other channel has no new proof: {said}");
        said.contains(of_channel) && said.contains(reason)
    })
    .await;
    daemon.until("the other channel delivers", |_| all(1)).await;

    database.change(&repair.replace("{role}", &role)).await;
    daemon.until("the waiting events are delivered", |_| all(0)).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready again", |answer| answer.status == 200).await;
    for channel in 0..2 {
        let found = offsets(&receiver, &format!("c{channel}"));
        assert_eq!(found, deliverable(&simulator, channel), "no event is lost or repeated");
    }
    let log = daemon.stop().await;
    assert_eq!(log.lines(LOST).len(), 0, "{}", log.tail());
}

#[tokio::test]
async fn a_dropped_table_of_proofs_stops_only_channels_with_new_proofs_until_it_is_restored() {
    let drop = "create table public.kept (like channeld.proofs including all); drop table channeld.proofs";
    let restore = "alter table public.kept set schema channeld; alter table channeld.kept rename to proofs; \
                   grant select, insert, update, delete on channeld.proofs to {role}";
    unusable_proofs_are_reported_and_used_after_the_repair(drop, restore, "does not exist").await;
}

#[tokio::test]
async fn revoked_rights_on_proofs_stop_only_channels_with_new_proofs_until_they_are_granted() {
    let revoke = "revoke all on channeld.proofs from {role}";
    let grant = "grant select, insert, update, delete on channeld.proofs to {role}";
    unusable_proofs_are_reported_and_used_after_the_repair(revoke, grant, "permission denied for table proofs").await;
}

#[tokio::test]
async fn a_locked_row_that_prevents_a_claim_is_named_and_stops_only_its_channel() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(2, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let found = |channel: usize| offsets(&receiver, &format!("c{channel}"));
    let all = |channel: usize| found(channel).len() >= deliverable(&simulator, channel).len();
    let mut daemon = setup.start();
    daemon.until("the backlog is delivered", |_| all(0) && all(1)).await;
    daemon.stop().await;

    let session = database.server.client(&database.name).await;
    let id = simulator.announcement().channels[0];
    let lock = format!("begin; select from channeld.channels where channel_id = '{id}' for update");
    session.batch_execute(&lock).await.unwrap();
    (0..2).for_each(|channel| simulator.publish(channel, 5));
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let reason = "channel c0: the state's database cannot be used: another session locks the channel's row";
    let says = |answer: &Answered| answer.status == 503 && answer.text.contains(reason);
    admin.until(&mut daemon, "/readyz", "the channel names the reason", says).await;
    daemon.until("the other channel delivers", |_| all(1)).await;
    assert_eq!(found(0).len(), 10);

    session.batch_execute("rollback").await.unwrap();
    daemon.until("the waiting events are delivered", |_| all(0)).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", |answer| answer.status == 200).await;
    assert_eq!(found(0), deliverable(&simulator, 0), "no event is lost or repeated");
    daemon.stop().await;
}

#[tokio::test]
async fn the_status_answers_while_a_claim_waits_for_a_locked_table() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver);
    let all = || offsets(&receiver, "c0").len() >= deliverable(&simulator, 0).len();
    let mut daemon = setup.start();
    daemon.until("the backlog is delivered", |_| all()).await;
    daemon.stop().await;

    let lock = locked(&database, "entries").await;
    simulator.publish(0, 5);
    let mut daemon = setup.start();
    // Before the daemon listens, the command itself reads the database, and fails.
    until_status(&setup, "the daemon names the wait", |status| {
        let reasons = status["reasons"].to_string();
        status["daemon"].is_object() && reasons.contains("channel c0: the state's database has not answered yet")
    })
    .await;
    lock.batch_execute("rollback").await.unwrap();
    daemon.until("the later events are delivered", |_| all()).await;
    assert_eq!(offsets(&receiver, "c0"), deliverable(&simulator, 0), "no event is lost or repeated");
    daemon.stop().await;
}
