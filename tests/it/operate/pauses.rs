//! A channel or a sink is paused and resumed. No event is lost, and the other channels and sinks continue.

use super::{PROVED, service};
use crate::support::{Admin, Receiver, Setup, deliverable, offsets, value};

#[tokio::test]
async fn a_paused_channel_stops_and_its_cursors_can_be_set() {
    let simulator = service(&[PROVED; 4]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;

    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
    daemon.until_logged("channel paused").await;
    simulator.publish(0, 2);
    let polls = simulator.requests().poll;
    let set = setup.tell(&["cursor", "set", "c0", "--sink", "hook", "--to", "3", "--yes", "--json"]).await;
    assert_eq!(set.each("repeated"), [1]);
    assert_eq!((setup.lines(), receiver.received(), simulator.requests().poll), (4, 4, polls));

    assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
    daemon.until("the resumed channel delivers", |_| setup.lines() == 6 && receiver.received() == 7).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(offsets(&receiver.delivered()), [1, 2, 3, 4, 4, 5, 6]);
}

#[tokio::test]
async fn a_paused_sink_delays_no_other_and_gets_everything_on_resume() {
    let simulator = service(&[PROVED; 2]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 3);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 2 && receiver.received() == 2).await;

    assert_eq!(setup.tell(&["pause", "c0", "--sink", "hook"]).await.code, Some(0));
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "nowhere"]).await.code, Some(64));
    simulator.publish(0, 40);
    daemon.until("the other sink receives all events", |_| setup.lines() == 42).await;
    assert_eq!(receiver.received(), 2);

    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0));
    daemon.until("the resumed sink has caught up", |_| receiver.received() == 42).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(1), "no daemon runs");
}

#[tokio::test]
async fn a_pause_survives_a_restart_shows_age_and_end_and_ends_by_itself() {
    let simulator = service(&[PROVED; 2]).await;
    let setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 2).await;
    let paused = setup.tell(&["pause", "c0", "--for", "1h"]).await;
    assert!(String::from_utf8_lossy(&paused.out).starts_with("c0: paused until 20"), "{paused:?}");
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "file"]).await.code, Some(0));
    daemon.until_logged("channel paused").await;
    daemon.stop().await;
    simulator.publish(0, 1);

    let polls = simulator.requests().poll;
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let (channel, lane) = (&report["channels"][0], &report["channels"][0]["lanes"][0]);
    assert_eq!((&channel["state"], &lane["state"]), (&"paused".into(), &"paused".into()), "{report:#}");
    assert!(channel["paused"]["until"].is_string() && lane["paused"]["until"].is_null(), "{report:#}");
    let table = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    let headline: Vec<_> = table.lines().filter(|line| line.starts_with("paused: channel c0")).collect();
    let [of_channel, of_sink] = headline[..] else { panic!("{table}") };
    assert!(of_channel.contains(", for ") && of_channel.contains(", until 20"), "{table}");
    assert!(of_sink.contains(", sink file, for ") && of_sink.ends_with(", until it is resumed"), "{table}");
    let scrape = admin.get("/metrics").await.text;
    for sample in [
        r#"channeld_channel_paused_seconds{channel="c0"}"#,
        r#"channeld_lane_paused_seconds{channel="c0",sink="file"}"#,
    ] {
        assert!(value(&scrape, sample) > Some(0.0), "{scrape}");
    }
    assert_eq!(simulator.requests().poll, polls);

    assert_eq!(setup.tell(&["resume", "c0", "--sink", "file"]).await.code, Some(0));
    assert_eq!(setup.tell(&["pause", "c0", "--for", "0s"]).await.code, Some(64));
    assert_eq!(setup.tell(&["pause", "c0", "--for", "1s"]).await.code, Some(0));
    daemon.until_logged("the pause has ended").await;
    daemon.until("the channel delivers after the pause", |_| setup.lines() == 3).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert!(report["channels"][0]["paused"].is_null(), "{report:#}");
    assert_eq!(
        daemon.stop().await.lines("channel paused"),
        Vec::<serde_json::Value>::new(),
        "a stop is not logged as a pause"
    );
}
