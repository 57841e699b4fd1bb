//! `channeld run --until-caught-up` exits when every sink has every event that the service had at the start.

use rustix::process::Signal;
use simulator::{EventSpec, Kind, Options, Simulator};

use crate::support::{Receiver, Setup, deliverable};

const RUN: &[&str] = &["run", "--until-caught-up"];
const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const LATE: EventSpec = EventSpec::Late(Kind::WatcherEvent);

/// A service that withholds the proof of the second of three events.
async fn with_a_late_proof(proof_timeout: &str) -> (Simulator, Setup) {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in [PROVED, LATE, PROVED] {
        simulator.publish_one(0, spec);
    }
    let setup = Setup::reading(&simulator).with("verification.proof_timeout", proof_timeout);
    (simulator, setup)
}

#[tokio::test]
async fn it_exits_with_0_and_every_sink_has_everything() {
    let options = Options { channels: 2, events: 300, unsigned: 0.2, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 7);
    setup.write();
    for published in [0, 5] {
        simulator.publish(0, published);
        let told = setup.tell(RUN).await;
        assert_eq!(told.code, Some(0), "{told:?}");
        for (number, channel) in ["c0", "c1"].into_iter().enumerate() {
            assert_eq!(setup.offsets(channel), deliverable(&simulator, number), "{channel}");
        }
        assert!(told.errors.contains("channel has caught up"), "{told:?}");
    }
    let expected: usize = [0, 1].map(|number| deliverable(&simulator, number).len()).iter().sum();
    assert_eq!(receiver.received(), expected, "the webhook has everything too");
}

#[tokio::test]
async fn it_waits_for_a_proof_that_can_still_arrive() {
    let (simulator, setup) = with_a_late_proof("1h").await;
    let mut daemon = setup.start_until_caught_up();
    daemon.until("the other events arrive", |_| setup.lines() == 2).await;
    simulator.prove(0, 2);
    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.log.tail());
    assert_eq!(setup.offsets("c0"), [1, 3, 2]);
}

#[tokio::test]
async fn it_does_not_wait_for_a_proof_after_its_timeout() {
    let (_simulator, setup) = with_a_late_proof("1s").await;
    setup.write();
    let told = setup.tell(RUN).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    assert_eq!(setup.offsets("c0"), [1, 3]);
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), [2]);
}

#[tokio::test]
async fn a_signal_before_it_has_caught_up_ends_it_with_1() {
    let (_simulator, setup) = with_a_late_proof("1h").await;
    let mut daemon = setup.start_until_caught_up();
    daemon.until("the other events arrive", |_| setup.lines() == 2).await;
    daemon.signal(Signal::TERM);
    let ended = daemon.ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.log.tail());
}

#[tokio::test]
async fn it_exits_with_69_if_the_service_does_not_answer() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    drop(simulator);
    let told = setup.tell(RUN).await;
    assert_eq!(told.code, Some(69), "{told:?}");
    assert_eq!(setup.lines(), 0);
}

#[tokio::test]
async fn a_missing_channel_does_not_stop_the_others_but_the_exit_code_is_69() {
    let simulator = Simulator::start(Options { channels: 2, events: 50, ..Options::default() }).await.unwrap();
    simulator.archive(1);
    let setup = Setup::reading(&simulator);
    setup.write();
    let told = setup.tell(RUN).await;
    assert_eq!(told.code, Some(69), "{told:?}");
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}
