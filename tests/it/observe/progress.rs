//! A channel that is behind reports its progress, its rate, and the estimated remaining time.

use std::time::Duration;

use simulator::{Options, Simulator};

use crate::support::{Receiver, Reply, Setup};

#[tokio::test]
async fn a_lagging_channel_reports_the_remaining_time() {
    let simulator = Simulator::start(Options { events: 2_000, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    receiver.always(Some(Reply::Slow(Duration::from_millis(50))));
    let mut daemon = setup.start();
    daemon.until_logged("channel catches up").await;
    let line = daemon.log().lines("channel catches up").remove(0);
    let number = |member: &str| line[member].as_f64().unwrap_or_else(|| panic!("{member} is no number: {line}"));
    assert_eq!((&line["channel"], number("newest")), (&"c0".into(), 2_000.0));
    let (offset, rate, left) = (number("offset"), number("events_per_second"), number("seconds_left"));
    assert!(offset > 0.0 && rate > 0.0 && (left - (2_000.0 - offset) / rate).abs() <= 1.0, "{line}");
    let said = line["progress"].as_str().unwrap();
    assert!(said.contains(" of 2,000, ") && said.contains("/s, about ") && said.ends_with(" left"), "{said}");
    assert!(!said.contains('['), "the bar is for terminals: {said}");

    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let channel = &report["channels"][0];
    assert!(channel["events_per_second"].as_f64().unwrap() > 0.0, "{channel:#}");
    assert!(channel["seconds_left"].as_u64().unwrap() > 0, "{channel:#}");
    assert!(channel["lanes"][1]["events_per_second"].as_f64().unwrap() > 0.0, "{channel:#}");
    assert!(channel["lanes"][0]["seconds_left"].is_null(), "the file is not behind: {channel:#}");
    let text = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(text.contains(" of 2,000, ") && text.contains("/s, about "), "{text}");

    receiver.always(None);
    daemon.until("it has caught up", |_| receiver.requests() >= 2_000).await;
    daemon.stop().await;
}
