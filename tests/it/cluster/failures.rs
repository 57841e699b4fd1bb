//! Faults that must not lose an event or let two instances run one channel: a process that is stopped and continued, or a
//! database that is down, hangs or refuses a commit.

use rustix::process::Signal;
use std::sync::Arc;

use super::{instance, offsets, service, until};
use crate::support::{Admin, Answered, Database, Line, Pooler, Receiver, Relay, Server, deliverable, skip};

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
    first
        .until_logged("no heartbeat was accepted for too long: every channel stops until a heartbeat is accepted")
        .await;
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
    let (mut one, mut other) = (one.start(), other.start());
    let come = |events: usize| (0..4).all(|channel| offsets(&receiver, &format!("c{channel}")).len() >= events);
    one.until("all events are delivered", |_| come(50)).await;
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the channels are shared evenly", shares, &[2, 2]).await;
    (0..4).for_each(|channel| simulator.publish(channel, 10));
    one.until("the later events are delivered too", |_| come(60)).await;
    other.until("the daemon runs", |_| true).await;
    for channel in 0..4 {
        assert_eq!(offsets(&receiver, &format!("c{channel}")), deliverable(&simulator, channel));
    }
    one.stop().await;
    other.stop().await;
}
