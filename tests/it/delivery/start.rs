//! `start` decides where reading begins if no cursor exists. After that it has no effect.

use serde_json::{Value, json};
use simulator::{Options, Simulator};

use crate::support::{Receiver, Setup, deliverable, offsets};

#[tokio::test]
async fn start_applies_to_the_first_run_only() {
    for (start, inclusive, sparse) in [
        (json!("earliest"), false, false),
        (json!("latest"), false, false),
        (json!("latest"), true, true),
        (json!(0), false, false),
        (json!(1), false, false),
        (json!(20), false, false),
        (json!(20), true, true),
        (json!(40), false, false),
    ] {
        let options = Options { events: 30, unsigned: 0.2, inclusive, sparse, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let mut setup = Setup::reading(&simulator).with("channels.c0.start", start.clone()).with("api.page_limit", 7);
        let backlog = deliverable(&simulator, 0);
        let first = match &start {
            Value::Number(offset) => offset.as_i64().unwrap(),
            word if word == "earliest" => 0,
            _ => backlog.last().unwrap() + 1,
        };
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        simulator.publish(0, 20);
        let expected: Vec<_> = deliverable(&simulator, 0).into_iter().filter(|offset| *offset >= first).collect();
        daemon.until("the events from the start offset on arrive", |_| setup.lines() == expected.len()).await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), expected, "{start}, inclusive {inclusive}, sparse {sparse}");

        for later in ["earliest", "latest"] {
            setup.set("channels.c0.start", later);
            simulator.publish(0, 3);
            setup.run_until_lines(setup.lines() + 3).await;
        }
        let expected: Vec<_> = deliverable(&simulator, 0).into_iter().filter(|offset| *offset >= first).collect();
        assert_eq!(setup.offsets("c0"), expected, "{start}: an existing cursor takes precedence");
    }
}

#[tokio::test]
async fn a_sink_added_later_begins_at_start() {
    for (start, expected) in [(json!("earliest"), 1..=15), (json!("latest"), 11..=15), (json!(4), 4..=15)] {
        let simulator = Simulator::start(Options { events: 10, ..Options::default() }).await.unwrap();
        let receiver = Receiver::start().await;
        let setup = Setup::reading(&simulator).with("channels.c0.start", "earliest").with("api.page_limit", 3);
        setup.run_until_lines(10).await;

        let setup = setup.with("channels.c0.start", start.clone()).with_webhook("hook", &receiver);
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        simulator.publish(0, 5);
        let expected: Vec<i64> = expected.collect();
        daemon
            .until("both sinks have their events", |_| setup.lines() == 15 && receiver.received() == expected.len())
            .await;
        daemon.stop().await;

        assert_eq!(offsets(&receiver.delivered()), expected, "{start}");
        assert_eq!(
            setup.offsets("c0"),
            (1..=15).collect::<Vec<_>>(),
            "{start}: the older sink receives no event twice"
        );
    }
}

#[tokio::test]
async fn channels_share_a_file_and_each_keeps_its_order() {
    let options = Options { channels: 4, events: 60, unsigned: 0.2, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).with("api.page_limit", 9);
    setup.run_until_lines(240).await;
    simulator.publish(2, 10);
    setup.run_until_lines(250).await;
    for number in 0..4 {
        assert_eq!(setup.offsets(&format!("c{number}")), deliverable(&simulator, number));
    }
}

#[tokio::test]
async fn a_wrong_threshold_at_the_first_start_quarantines_nothing() {
    let simulator = Simulator::start(Options { events: 250, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator).with("verification.min_required_signatures", 5);
    let mut daemon = setup.start();
    daemon.until_logged("failed: an operator must act; retrying").await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let reason = report["reasons"][0].as_str().unwrap();
    assert!(
        reason
            .contains("200 of 200 events rejected (too-few-signatures), and no event of the channel was ever verified"),
        "{report:#}"
    );
    assert_eq!((&report["channels"][0]["quarantined"], setup.lines()), (&0.into(), 0));

    setup.set("verification.min_required_signatures", 4);
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    daemon.until("everything arrives", |_| setup.lines() == 250).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}
