//! A channel that does not exist any more stops without affecting the others. If all channels are gone, the daemon
//! exits and says so.

use simulator::{Fault, Options, Simulator};

use crate::support::{Setup, deliverable, eventually};

const GONE: &str = "channel does not exist or is archived: stopped; the other channels continue";

#[tokio::test]
async fn a_deleted_channel_stops_alone() {
    let options = Options { channels: 3, events: 10, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator);
    simulator.archive(1);
    let mut daemon = setup.start();
    daemon
        .until("the events of the other channels arrive", |daemon| setup.lines() == 20 && daemon.has_logged(GONE))
        .await;

    simulator.archive(2);
    daemon.until("another channel is gone", |daemon| daemon.log().lines(GONE).len() == 2).await;
    simulator.publish(0, 5);
    daemon.until("the last channel continues", |_| setup.lines() == 25).await;
    let log = daemon.stop().await;

    let gone: Vec<_> = log.lines(GONE).into_iter().map(|line| line["channel"].clone()).collect();
    assert_eq!(gone, ["c1", "c2"]);
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
    assert!(setup.offsets("c1").is_empty());
}

#[tokio::test]
async fn when_every_channel_is_deleted_the_exit_code_says_so() {
    let simulator = Simulator::start(Options { channels: 2, events: 3, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    let daemon = setup.start();
    eventually("everything arrives", || (setup.lines() == 6).then_some(())).await;

    simulator.archive(0);
    simulator.archive(1);

    assert_eq!(daemon.ended().await.code, Some(69));
}

#[tokio::test]
async fn a_404_from_something_else_is_retried_and_explained() {
    let simulator = Simulator::start(Options { events: 1, ..Options::default() }).await.unwrap();
    simulator.fail_next(Fault::Html(404), 5);
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the cause is logged", |daemon| daemon.log().0.contains("and not from the service itself")).await;
    daemon.until("the event arrives", |_| setup.lines() == 1).await;
    daemon.stop().await;
}
