//! SIGHUP: a valid configuration takes effect as a whole, an invalid one not at all.

use std::time::Duration;

use channeld::simulator::{Options, Simulator};
use rustix::process::Signal;
use serde_json::json;

use crate::support::{Delivered, Receiver, Reply, Setup, deliverable, offsets};

const IN_FORCE: &str = "configuration read again: in force";
const READ: &str = "configuration read again: the batches in hand are finished first";
const REJECTED: &str = "configuration rejected: nothing changes";

async fn service() -> Simulator {
    Simulator::start(Options { channels: 2, events: 10, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn a_channel_and_a_sink_can_be_added_and_another_file_chosen() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator);
    let second = simulator.announcement().channels[1].to_string();
    setup.remove("channels.c1");
    let mut daemon = setup.start();
    daemon.until("the first channel arrives", |_| setup.lines() == 10).await;

    let other = setup.path("other.jsonl");
    setup.define_webhook("hook", &receiver);
    setup.set("channels.c1.id", second);
    setup.set("channels.c1.sinks", vec!["hook"]);
    setup.set("sinks.file.path", other.display().to_string());
    setup.write();
    daemon.signal(Signal::HUP);

    daemon.until_logged(IN_FORCE).await;
    daemon.until("the second channel arrives", |_| receiver.received() == 10).await;
    simulator.publish(0, 5);
    let lines = || std::fs::read_to_string(&other).map_or(0, |text| text.lines().count());
    daemon.until("what is new goes to the other file", |_| lines() == 5).await;
    daemon.stop().await;

    let expected = deliverable(&simulator, 0);
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 1));
    assert_eq!([setup.offsets("c0"), offsets(&Delivered::read(&other))].concat(), expected, "each event once");
}

#[tokio::test]
async fn an_invalid_one_changes_nothing_and_is_said() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;

    let mistakes = [
        ("api.page_limit", json!(1000)),
        ("channels.c0.sinks", json!(["nowhere"])),
        ("state.path", json!(setup.path("elsewhere").display().to_string())),
        ("api.api_key_file", json!("/nowhere/at/all")),
    ];
    for (done, (key, value)) in mistakes.iter().enumerate() {
        setup.write_but(key, value.clone());
        daemon.signal(Signal::HUP);
        daemon.until("it is said", |daemon| daemon.log().lines(REJECTED).len() == done + 1).await;
        simulator.publish(0, 1);
        daemon.until("it goes on as before", |_| setup.lines() == 21 + done).await;
    }
    std::fs::remove_file(setup.path("channeld.toml")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.until("it is said", |daemon| daemon.log().lines(REJECTED).len() == 5).await;

    let log = daemon.stop().await;
    let rejected = log.lines(REJECTED);
    for (line, (key, _)) in rejected.iter().zip(&mistakes) {
        assert!(line["level"] == "ERROR" && line["error"].as_str().unwrap().contains(key), "{key}: {line}");
    }
    assert!(log.lines(IN_FORCE).is_empty());
    assert!(!setup.path("elsewhere").exists());
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_rotated_key_is_read_from_its_file() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let key_file = setup.path("api-key");
    std::fs::write(&key_file, format!("{}\n", simulator.announcement().api_key)).unwrap();
    setup.remove("api.api_key");
    setup.set("api.api_key_file", key_file.display().to_string());
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;

    simulator.set_api_key("rotated-key");
    setup.keep_secret("rotated-key");
    simulator.publish(0, 1);
    daemon.until_logged("failed: somebody must act; trying again meanwhile").await;
    std::fs::write(&key_file, "rotated-key\n").unwrap();
    daemon.signal(Signal::HUP);

    daemon.until("what is new arrives", |_| setup.lines() == 21).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn many_at_once_lose_and_repeat_nothing() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 3);
    simulator.publish(0, 100);
    let mut daemon = setup.start();
    for step in 1..=6 {
        daemon.until("some arrive", |_| receiver.received() >= step * 15).await;
        daemon.signal(Signal::HUP);
    }
    daemon.until("everything arrives", |_| setup.lines() == 120 && receiver.received() == 120).await;
    let log = daemon.stop().await;

    assert!(!log.lines(IN_FORCE).is_empty());
    for (number, channel) in ["c0", "c1"].into_iter().enumerate() {
        let expected = deliverable(&simulator, number);
        let posted: Vec<_> = receiver.delivered().into_iter().filter(|posted| posted.channel == channel).collect();
        assert_eq!((setup.offsets(channel), offsets(&posted)), (expected.clone(), expected), "{channel}");
    }
}

#[tokio::test]
async fn a_sink_that_is_slower_than_the_grace_does_not_end_the_daemon() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("shutdown_grace", "100ms");
    let setup = setup.with("sinks.hook.timeout", "1s");
    receiver.always(Some(Reply::Hang));
    let mut daemon = setup.start();
    daemon.until("it hangs", |_| receiver.requests() == 2).await;
    daemon.signal(Signal::HUP);
    daemon.until_logged(IN_FORCE).await;

    receiver.always(None);
    let distinct = || receiver.ids().into_iter().collect::<std::collections::BTreeSet<_>>().len();
    daemon.until("everything arrives", |_| setup.lines() == 20 && distinct() == 20).await;
    daemon.stop().await;
    for (number, channel) in ["c0", "c1"].into_iter().enumerate() {
        assert_eq!(setup.offsets(channel), deliverable(&simulator, number));
    }
}

#[tokio::test]
async fn the_last_one_holds_where_one_follows_another() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    receiver.always(Some(Reply::Slow(Duration::from_millis(100))));
    let mut daemon = setup.start();
    daemon.until("a batch is in hand", |_| receiver.requests() == 2 && setup.lines() == 20).await;
    daemon.signal(Signal::HUP);
    daemon.until_logged(READ).await;
    let other = setup.path("other.jsonl");
    setup.set("sinks.file.path", other.display().to_string());
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until("both are read", |daemon| daemon.log().lines(READ).len() == 2).await;
    daemon.until_logged(IN_FORCE).await;
    receiver.always(None);

    daemon.until("everything in hand arrives", |_| receiver.received() == 20).await;
    simulator.publish(0, 5);
    daemon.until("what is new arrives", |_| receiver.received() == 25).await;
    let lines = || std::fs::read_to_string(&other).map_or(0, |text| text.lines().count());
    daemon.until("and goes to the file chosen last", |_| lines() == 5).await;
    daemon.stop().await;
}
