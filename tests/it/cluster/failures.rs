//! Faults that must not lose an event or let two instances run one channel: a process that is stopped and continued, or a
//! database that is down, hangs, refuses a commit, or has a locked table.

use std::sync::Arc;

use proof::event::ChannelId;
use rustix::process::Signal;
use tokio_postgres::Client;

use super::{instance, offsets, service, until};
use crate::support::{Admin, Answered, Daemon, Database, Line, Pooler, Receiver, Relay, Server, deliverable, skip};

/// The log message about a long wait for a table.
const LOCKED: &str = "a table of the state's database is locked or cannot be used: waiting, retrying";

/// The log message about a lost lease.
const LOST: &str = "no heartbeat was accepted for too long: every channel stops until a heartbeat is accepted";

/// Locks a table of the state until the transaction of the returned connection ends.
pub(super) async fn locked(database: &Database, table: &str) -> Client {
    let session = database.server.client(&database.name).await;
    session.batch_execute(&format!("begin; lock table channeld.{table} in access exclusive mode")).await.unwrap();
    session
}

/// Waits until the daemon is not ready because of a wait for this table. Returns the answer.
async fn until_waiting(admin: &Admin, daemon: &mut Daemon, table: &str) -> Answered {
    let reason = format!("has not executed a statement on `{table}` for 1");
    let says = |answer: &Answered| answer.status == 503 && answer.text.contains(&reason);
    admin.until(daemon, "/readyz", "the wait for the table is a reason", says).await
}

#[tokio::test]
async fn a_frozen_instance_delivers_nothing_after_another_took_over() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receivers) = (service(1, 30).await, [Receiver::start().await, Receiver::start().await]);
    let setups = ["stopped", "other"].into_iter().zip(&receivers);
    let setups: Vec<_> = setups.map(|(name, receiver)| instance(name, &simulator, &database, receiver)).collect();
    let mut stopped = setups[0].start();
    stopped.until("all events are delivered", |_| offsets(&receivers[0], "c0").len() >= 30).await;
    let mut other = setups[1].start();
    until(&database, "both live", "select count(*) from channeld.instances", &[2]).await;

    stopped.signal(Signal::STOP);
    simulator.publish(0, 20);
    other.until("the other instance takes over", |_| offsets(&receivers[1], "c0").len() >= 20).await;
    let before = receivers[0].received();
    stopped.signal(Signal::CONT);
    stopped.until_logged("these instances are alive").await;
    simulator.publish(0, 10);
    other.until("the other instance continues", |_| offsets(&receivers[1], "c0").len() >= 30).await;
    assert_eq!(receivers[0].received(), before, "no delivery began after the lease had ended");
    let expected = deliverable(&simulator, 0);
    let found = [offsets(&receivers[0], "c0"), offsets(&receivers[1], "c0")].concat();
    assert_eq!(found, expected, "no event is lost or repeated");
    stopped.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn an_unreachable_database_is_retried_and_no_instance_exits() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let database = Database::on(Arc::new(server)).await;
    let (simulator, receiver) = (service(2, 100).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("some events are delivered", |_| receiver.received() >= 20).await;
    database.server.kill();
    let says = |answer: &Answered| answer.status == 503 && answer.text.contains("database");
    admin.until(&mut daemon, "/readyz", "the answer names the reason", says).await;
    assert_eq!(admin.get("/livez").await.status, 200, "a restart would not help");
    database.server.run();
    let all = |channel| offsets(&receiver, &format!("c{channel}")).len() >= deliverable(&simulator, channel).len();
    daemon.until("all events are delivered", |_| all(0) && all(1)).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready again", |answer| answer.status == 200).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_refused_commit_is_reported_and_retried() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("all events are delivered", |_| receiver.received() >= 10).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", |answer| answer.status == 200).await;
    database.change("alter table channeld.entries rename to entries_away").await;
    simulator.publish(0, 1);
    daemon.until_logged("the state cannot be written: channels wait, retrying").await;
    let says = |answer: &Answered| answer.status == 503 && answer.text.contains("entries");
    admin.until(&mut daemon, "/readyz", "the answer names the reason", says).await;
    database.change("alter table channeld.entries_away rename to entries").await;
    daemon.until_logged("the state is writable again").await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready again", |answer| answer.status == 200).await;
    assert_eq!(offsets(&receiver, "c0"), deliverable(&simulator, 0), "no event is lost or repeated");
    daemon.stop().await;
}

#[tokio::test]
async fn a_hanging_server_costs_the_lease_but_no_event() {
    let Some(database) = Database::new().await else { return };
    let relay = Relay::before(database.server.socket()).await;
    let (simulator, receivers) = (service(1, 20).await, [Receiver::start().await, Receiver::start().await]);
    let cut_off = instance("cut-off", &simulator, &database, &receivers[0]);
    let cut_off = cut_off.with("state.url", database.url_by(relay.address()));
    let other = instance("other", &simulator, &database, &receivers[1]);
    let mut first = cut_off.start();
    first.until("all events are delivered", |_| offsets(&receivers[0], "c0").len() >= 20).await;
    let mut second = other.start();
    until(&database, "both live", "select count(*) from channeld.instances", &[2]).await;
    relay.becomes(Line::Silent);
    first.until_logged(LOST).await;
    simulator.publish(0, 20);
    second.until("the other instance takes over", |_| offsets(&receivers[1], "c0").len() >= 20).await;
    relay.becomes(Line::Good);
    simulator.publish(0, 20);
    second.until("the other instance continues", |_| offsets(&receivers[1], "c0").len() >= 40).await;
    let found = [offsets(&receivers[0], "c0"), offsets(&receivers[1], "c0")].concat();
    assert_eq!(found, deliverable(&simulator, 0));
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn instances_work_through_a_transaction_pooler() {
    let Some(database) = Database::new().await else { return };
    let Some(pooler) = Pooler::before(&database).await else { return skip("pgbouncer") };
    let (simulator, receiver) = (service(4, 50).await, Receiver::start().await);
    let [one, other] =
        ["one", "other"].map(|name| instance(name, &simulator, &database, &receiver).with("state.url", pooler.url()));
    let (mut one, other) = (one.start(), other.start());
    let come = |events: usize| (0..4).all(|channel| offsets(&receiver, &format!("c{channel}")).len() >= events);
    one.until("all events are delivered", |_| come(50)).await;
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the channels are shared evenly", shares, &[2, 2]).await;
    (0..4).for_each(|channel| simulator.publish(channel, 10));
    one.until("the later events are delivered too", |_| come(60)).await;
    for channel in 0..4 {
        assert_eq!(offsets(&receiver, &format!("c{channel}")), deliverable(&simulator, channel));
    }
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn locked_proofs_are_reported_and_stop_no_heartbeat() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(2, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let all = || (0..2).all(|at| offsets(&receiver, &format!("c{at}")).len() >= deliverable(&simulator, at).len());
    daemon.until("all events are delivered", |_| all()).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", |answer| answer.status == 200).await;

    let lock = locked(&database, "proofs").await;
    simulator.publish(0, 20);
    let answer = until_waiting(&admin, &mut daemon, "proofs").await;
    assert!(!answer.text.contains("channel c1"), "the other channel has no new proof: {answer:?}");
    let of_channel = "channel c0: recording the proofs of new events";
    let says = |answer: &Answered| answer.text.contains(of_channel);
    admin.until(&mut daemon, "/readyz", "the channel has the reason too", says).await;
    daemon.until_logged(LOCKED).await;
    lock.batch_execute("rollback").await.unwrap();

    daemon.until_logged("the tables of the state's database can be used again").await;
    daemon.until("all events are delivered", |_| all()).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready again", |answer| answer.status == 200).await;
    assert_eq!(offsets(&receiver, "c0"), deliverable(&simulator, 0), "no event is lost or repeated");
    let log = daemon.stop().await;
    assert_eq!((log.lines(LOCKED).len(), log.lines(LOST).len()), (1, 0), "one line says why, and the lease is kept");
}

#[tokio::test]
async fn locked_requests_delay_neither_heartbeats_nor_deliveries() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(2, 10).await, Receiver::start().await);
    let setup = instance("a", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let another = instance("b", &simulator, &database, &receiver);
    let other = another.start();
    let all = || (0..2).all(|at| offsets(&receiver, &format!("c{at}")).len() >= deliverable(&simulator, at).len());
    daemon.until("all events are delivered", |_| all()).await;
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the channels are shared evenly", shares, &[1, 1]).await;

    let lock = locked(&database, "requests").await;
    // By then, the leases would have ended without heartbeats.
    until_waiting(&admin, &mut daemon, "requests").await;
    (0..2).for_each(|channel| simulator.publish(channel, 10));
    daemon.until("the later events are delivered too", |_| all()).await;
    let told = setup.tell(&["status", "--json"]).await;
    let reasons = told.json()[0]["not_ready"].to_string();
    assert!(reasons.contains("instance_unknown") && reasons.contains("state_waiting"), "{reasons}");
    lock.batch_execute("rollback").await.unwrap();

    admin.until(&mut daemon, "/readyz", "the daemon is ready again", |answer| answer.status == 200).await;
    for log in [daemon.stop().await, other.stop().await] {
        assert_eq!(log.lines(LOST).len(), 0, "{}", log.tail());
    }
    for channel in 0..2 {
        let found = offsets(&receiver, &format!("c{channel}"));
        assert_eq!(found, deliverable(&simulator, channel), "no event is lost or repeated");
    }
}

#[tokio::test]
async fn locked_channels_cost_no_lease() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("all events are delivered", |_| offsets(&receiver, "c0").len() >= 10).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", |answer| answer.status == 200).await;

    let lock = locked(&database, "channels").await;
    simulator.publish(0, 10);
    // The lease is shorter than this wait.
    until_waiting(&admin, &mut daemon, "channels, entries").await;
    lock.batch_execute("rollback").await.unwrap();

    admin.until(&mut daemon, "/readyz", "the daemon is ready again", |answer| answer.status == 200).await;
    daemon.until("the later events are delivered", |_| offsets(&receiver, "c0").len() >= 20).await;
    let log = daemon.stop().await;
    assert_eq!(log.lines(LOST).len(), 0, "{}", log.tail());
    assert_eq!(offsets(&receiver, "c0"), deliverable(&simulator, 0), "no event is lost or repeated");
}

#[tokio::test]
async fn a_locked_row_delays_only_the_commits_of_its_channel() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(2, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let [stopped, free] = [0, 1].map(|channel| simulator.announcement().channels[channel]);
    let cursor = |channel: ChannelId| {
        format!(
            "select coalesce(max(nullif(convert_from(value, 'UTF8'), 'null')::bigint), -1) from channeld.entries \
             where channel_id = '{channel}' and kind = 'cursors'"
        )
    };
    let last = |channel: usize| *deliverable(&simulator, channel).last().unwrap();
    let until_recorded = async |channel: ChannelId, number: usize| {
        until(&database, "all events are recorded", &cursor(channel), &[last(number)]).await;
    };
    until_recorded(stopped, 0).await;
    until_recorded(free, 1).await;

    let session = database.server.client(&database.name).await;
    let lock = format!("begin; update channeld.channels set owner = owner where channel_id = '{stopped}'");
    session.batch_execute(&lock).await.unwrap();
    (0..2).for_each(|channel| simulator.publish(channel, 10));
    until_recorded(free, 1).await;
    let says =
        |answer: &Answered| answer.status == 503 && answer.text.contains("another session locks the channel's row");
    admin.until(&mut daemon, "/readyz", "the answer names the reason", says).await;
    simulator.publish(1, 10);
    until_recorded(free, 1).await;
    session.batch_execute("rollback").await.unwrap();
    until_recorded(stopped, 0).await;
    daemon.stop().await;
    for channel in 0..2 {
        let found = offsets(&receiver, &format!("c{channel}"));
        assert_eq!(found, deliverable(&simulator, channel), "no event is lost or repeated");
    }
}
