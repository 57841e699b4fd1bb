//! Reloading the configuration of a running daemon. A valid configuration takes effect as a whole, an invalid one not
//! at all. Channels and sinks whose settings did not change keep running.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::json;
use simulator::{Options, Simulator};

use crate::support::{Daemon, Delivered, Receiver, Reply, Setup, deliverable, offsets};

const IN_FORCE: &str = "configuration reloaded";
const REJECTED: &str = "configuration rejected: the previous one stays in force";
const FOLLOWED: &str = "files of the configuration changed: reloaded";

async fn service() -> Simulator {
    Simulator::start(Options { channels: 2, events: 10, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn a_reload_adds_a_channel_and_a_sink_and_changes_a_file() {
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
    daemon.until("new events go to the other file", |_| lines() == 5).await;
    daemon.stop().await;

    let expected = deliverable(&simulator, 0);
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 1));
    assert_eq!([setup.offsets("c0"), offsets(&Delivered::read(&other))].concat(), expected, "each event once");
}

#[tokio::test]
async fn an_invalid_configuration_changes_nothing_and_is_reported() {
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
        daemon.until("the error is logged", |daemon| daemon.log().lines(REJECTED).len() == done + 1).await;
        simulator.publish(0, 1);
        daemon.until("delivery continues as before", |_| setup.lines() == 21 + done).await;
    }
    std::fs::remove_file(setup.path("channeld.toml")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.until("the error is logged", |daemon| daemon.log().lines(REJECTED).len() == 5).await;

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
async fn the_status_shows_a_rejected_configuration_until_it_is_accepted() {
    let simulator = service().await;
    let (setup, key_file, mut daemon) = with_an_old_key(&simulator).await;
    let rejected = async || setup.tell(&["status", "--json"]).await.json().remove(0)["rejected_config"].take();
    let reload = async || setup.tell(&["reload"]).await.code;
    assert!(rejected().await.is_null());

    setup.write_but("api.page_limit", json!(1000));
    assert_eq!(reload().await, Some(78));
    let first = rejected().await;
    assert!(first["error"].as_str().unwrap().contains("api.page_limit") && first["since"].is_string(), "{first}");
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let mut reasons = report["not_ready"].as_array().unwrap().iter();
    assert!(report["ready"] == false && reasons.any(|reason| reason["kind"] == "config_rejected"), "{report:#}");
    let text = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(text.contains("the configuration was rejected at 20") && text.contains("api.page_limit"), "{text}");

    // A changed key is read without the file, so the file stays rejected.
    std::fs::write(&key_file, "rotated-key\n").unwrap();
    daemon.until_logged(FOLLOWED).await;
    assert_eq!((reload().await, rejected().await), (Some(78), first));
    setup.write();
    assert_eq!((reload().await, rejected().await.is_null()), (Some(0), true));

    std::fs::write(&key_file, "").unwrap();
    daemon.until_logged("files of the configuration changed and cannot be used: the previous ones stay in force").await;
    let unusable = rejected().await;
    assert!(unusable["error"].as_str().unwrap().contains("api.api_key_file"), "{unusable}");
    std::fs::write(&key_file, "rotated-key\n").unwrap();
    daemon.until("the key is read again", |daemon| daemon.log().lines(FOLLOWED).len() == 2).await;
    assert!(rejected().await.is_null());
    daemon.stop().await;
}

/// A daemon that has read everything with an API key from a file. The service no longer accepts this key.
async fn with_an_old_key(simulator: &Simulator) -> (Setup, PathBuf, Daemon) {
    let mut setup = Setup::reading(simulator);
    let key_file = setup.path("api-key");
    std::fs::write(&key_file, format!("{}\n", simulator.announcement().api_key)).unwrap();
    setup.remove("api.api_key");
    setup.set("api.api_key_file", key_file.display().to_string());
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;
    simulator.set_api_key("rotated-key");
    setup.keep_secret("rotated-key");
    (setup, key_file, daemon)
}

#[tokio::test]
async fn a_rotated_key_is_read_from_its_file() {
    let simulator = service().await;
    let (setup, key_file, mut daemon) = with_an_old_key(&simulator).await;
    simulator.publish(0, 1);
    daemon.until_logged("failed: an operator must act; retrying").await;
    std::fs::write(&key_file, "rotated-key\n").unwrap();
    daemon.signal(Signal::HUP);

    daemon.until("new events arrive", |_| setup.lines() == 21).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_secret_that_becomes_a_pipe_is_refused_and_signals_still_work() {
    let simulator = service().await;
    let (setup, key_file, daemon) = with_an_old_key(&simulator).await;
    std::fs::remove_file(&key_file).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&key_file).status().unwrap().success());
    let told = setup.tell(&["reload"]).await;
    assert!(told.code == Some(78) && told.errors.contains("is not a regular file"), "{told:?}");
    let log = daemon.stop().await;
    assert_eq!(log.lines(REJECTED).len(), 1);
}

#[tokio::test]
async fn many_reloads_at_once_lose_and_repeat_nothing() {
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

/// The new configuration changes the timeout of the hanging sink, so its lane must restart.
#[tokio::test]
async fn a_lane_that_outlives_the_grace_period_is_still_replaced() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("shutdown_grace", "100ms");
    receiver.always(Some(Reply::Hang));
    let mut daemon = setup.start();
    daemon.until("it hangs", |_| receiver.requests() == 2).await;
    setup.set("sinks.hook.timeout", "1s");
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until_logged("lane did not end in time: its current batch is offered again").await;

    receiver.always(None);
    let distinct = || receiver.ids().into_iter().collect::<std::collections::BTreeSet<_>>().len();
    daemon.until("everything arrives", |_| setup.lines() == 20 && distinct() == 20).await;
    daemon.stop().await;
    for (number, channel) in ["c0", "c1"].into_iter().enumerate() {
        assert_eq!(setup.offsets(channel), deliverable(&simulator, number));
    }
}

#[tokio::test]
async fn of_several_reloads_the_last_one_wins() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;
    let other = |number: usize| setup.path(&format!("other-{number}.jsonl"));
    let paths: Vec<_> = (0..4).map(other).collect();
    for path in &paths {
        setup.set("sinks.file.path", path.display().to_string());
        setup.write();
        daemon.signal(Signal::HUP);
    }
    let holds = json!("sinks ~file");
    daemon
        .until("the last is in force", |daemon| {
            daemon.log().lines(IN_FORCE).iter().any(|line| line["changes"] == holds)
        })
        .await;
    assert_eq!(setup.tell(&["reload", "--json"]).await.json()[0]["sinks"]["changed"], json!([]));
    simulator.publish(0, 5);
    let lines = || std::fs::read_to_string(&paths[3]).map_or(0, |text| text.lines().count());
    daemon.until("new events go to the last configured file", |_| lines() == 5).await;
    daemon.stop().await;
}

/// A restarted lane would send the hanging request again, and would retry the refused request too early.
#[tokio::test]
async fn unchanged_channels_and_sinks_keep_running() {
    let simulator = service().await;
    let (hangs, refuses, changes) = (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let mut setup = Setup::reading(&simulator).with_webhook("hangs", &hangs).with_webhook("refuses", &refuses);
    setup = setup.with_webhook("changes", &changes).with("sinks.hangs.timeout", "60s");
    for key in ["retry_wait", "retry_wait_max"] {
        setup.set(&format!("sinks.refuses.{key}"), "1h");
    }
    setup.remove("channels.c1");
    hangs.always(Some(Reply::Hang));
    refuses.always(Some(Reply::Refuse(503, None)));
    let mut daemon = setup.start();
    daemon
        .until("two are stuck, and two are not", |_| {
            (hangs.requests(), refuses.requests(), changes.received(), setup.lines()) == (1, 1, 10, 10)
        })
        .await;

    let elsewhere = Receiver::start().await;
    setup.define_webhook("changes", &elsewhere);
    setup.set("api.page_limit", 3);
    setup.set("log.level", "info");
    setup.write();
    assert_eq!(
        setup.tell(&["reload", "--json"]).await.json(),
        [json!({"channels": {"added": [], "removed": [], "changed": []},
                "sinks": {"added": [], "removed": [], "changed": ["changes"]}, "others": ["api", "log"]})]
    );
    simulator.publish(0, 5);
    daemon.until("new events arrive at the new address", |_| elsewhere.received() == 5 && setup.lines() == 15).await;
    assert_eq!((hangs.requests(), refuses.requests(), changes.received()), (1, 1, 10));
    assert_eq!(offsets(&elsewhere.delivered()), deliverable(&simulator, 0)[10..]);

    setup.remove("sinks.hangs");
    setup.set("channels.c0.sinks", vec!["file", "refuses", "changes"]);
    setup.set("shutdown_grace", "100ms");
    setup.write();
    let told = setup.tell(&["reload"]).await;
    assert_eq!(
        String::from_utf8(told.out).unwrap(),
        "The configuration was reloaded.\nChannel c0 has changed.\nSink hangs was removed.\n\
         shutdown_grace has changed.\nChannel c0 no longer delivers to sink hangs. The state keeps its cursor (the start), \
         0 pending events and 0 dead letters: if the channel gets a sink with this name again, delivery continues from this state.\n"
    );
    simulator.publish(0, 1);
    daemon.until("delivery continues without the removed sink", |_| elsewhere.received() == 6).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let lanes = report["channels"][0]["lanes"].as_array().unwrap().iter().map(|lane| lane["sink"].as_str().unwrap());
    assert_eq!(lanes.collect::<Vec<_>>(), ["file", "refuses", "changes"]);
    daemon.stop().await;
    assert_eq!((hangs.requests(), refuses.requests()), (1, 1));
}

#[tokio::test]
async fn a_blocked_sink_is_tried_again_after_its_settings_changed() {
    let simulator = service().await;
    let (gone, elsewhere) = (Receiver::start().await, Receiver::start().await);
    gone.always(Some(Reply::Refuse(410, None)));
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &gone);
    setup.remove("channels.c1");
    let mut daemon = setup.start();
    daemon.until_logged("sink accepts no more events: new events wait until an operator resumes the sink").await;

    setup.define_webhook("hook", &elsewhere);
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until("everything goes elsewhere", |_| elsewhere.received() == 10).await;
    daemon.stop().await;
}

#[tokio::test]
async fn changed_secret_files_are_noticed_and_a_changed_configuration_file_is_not() {
    let simulator = service().await;
    let (setup, key_file, mut daemon) = with_an_old_key(&simulator).await;
    setup.write_but("api.page_limit", json!("half a chan"));
    std::fs::write(&key_file, "").unwrap();
    daemon.until_logged("files of the configuration changed and cannot be used: the previous ones stay in force").await;
    // Rename a new file over the old one, as the update of a mounted secret does.
    let next = setup.path("next");
    std::fs::write(&next, "rotated-key\n").unwrap();
    std::fs::rename(&next, &key_file).unwrap();
    daemon.until_logged(FOLLOWED).await;
    simulator.publish(0, 1);
    daemon.until("new events arrive", |_| setup.lines() == 21).await;
    let log = daemon.stop().await;
    assert!(log.lines(REJECTED).is_empty(), "the file itself was not read again");
}

#[tokio::test]
async fn old_and_new_signers_overlap_until_the_old_are_removed() {
    let old = service().await;
    let new = Simulator::start(Options { seed: 99, ..Options::default() }).await.unwrap();
    let signers = |simulator: &Simulator| -> Vec<String> {
        simulator.announcement().valid_signers.iter().map(ToString::to_string).collect()
    };
    let mut setup = Setup::reading(&old);
    setup.remove("channels.c1");
    setup.set("verification.valid_signers", signers(&new));
    let mut daemon = setup.start();
    daemon
        .until("their signers are not accepted", |daemon| {
            daemon.log().lines("event rejected: not delivered").len() + setup.lines() == 10
        })
        .await;

    setup.set("verification.valid_signers", [signers(&old), signers(&new)].concat());
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    let before = setup.lines();
    old.publish(0, 3);
    daemon.until("both sets count", |_| setup.lines() >= before + 3).await;
    setup.tell(&["quarantine", "retry", "c0", "--all"]).await;
    daemon.until("the rejected events are accepted now", |_| setup.lines() == 13).await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_reload_command_reports_mistakes_and_keys_that_need_a_restart() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator);
    setup.write();
    let told = setup.tell(&["reload"]).await;
    assert_eq!(told.code, Some(1), "nothing runs: {told:?}");
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;
    for (key, value) in [("admin.listen", "127.0.0.1:9"), ("admin.hosts", "other"), ("log.format", "text")] {
        setup.write_but(key, value);
        let told = setup.tell(&["reload"]).await;
        assert_eq!(told.code, Some(78), "{told:?}");
        assert!(told.errors.contains(&format!("{key} cannot change while channeld is running")), "{told:?}");
    }
    setup.write_but("api.page_limit", 1000);
    let told = setup.tell(&["reload"]).await;
    assert!(told.code == Some(78) && told.errors.contains("api.page_limit"), "{told:?}");
    simulator.publish(0, 1);
    daemon.until("delivery continues as before", |_| setup.lines() == 21).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_removed_sink_keeps_its_cursor_and_continues_there_when_it_returns() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20 && receiver.received() == 20).await;

    setup.set("channels.c0.sinks", vec!["file"]);
    setup.write();
    let told = String::from_utf8(setup.tell(&["reload"]).await.out).unwrap();
    let kept = "Channel c0 no longer delivers to sink hook. The state keeps its cursor (";
    assert!(told.contains(kept) && told.contains(", 0 pending events and 0 dead letters: "), "{told}");
    simulator.publish(0, 5);
    daemon.until("the remaining sink gets new events", |_| setup.lines() == 25).await;

    setup.set("channels.c0.sinks", vec!["file", "hook"]);
    setup.write();
    let told = String::from_utf8(setup.tell(&["reload"]).await.out).unwrap();
    assert!(told.contains("Delivery of channel c0 to sink hook begins after its recorded cursor "), "{told}");
    daemon.until("the sink gets the events that it missed", |_| receiver.received() == 25).await;
    daemon.stop().await;
    let posted: Vec<_> = receiver.delivered().into_iter().filter(|posted| posted.channel == "c0").collect();
    assert_eq!(offsets(&posted), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_reload_warns_about_recent_events_that_would_now_be_rejected() {
    let simulator = service().await;
    let known = simulator.announcement();
    let signers: Vec<_> = known.valid_signers.iter().map(ToString::to_string).collect();
    let mut setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 20).await;
    let unchanged = setup.tell(&["reload", "--json"]).await.json().remove(0);
    assert_eq!(unchanged["warnings"], json!(null));

    setup.set("verification.valid_signers", signers[1..].to_vec());
    setup.write();
    let told = setup.tell(&["reload"]).await;
    let expected = format!(
        "warning: channel c0: valid_signers no longer contains {}, which signed events recently: events that need their signatures will be rejected (too-few-signatures)\n",
        signers[0]
    );
    assert!(told.code == Some(0) && String::from_utf8(told.out).unwrap().contains(&expected), "{expected}");

    setup.set("verification.org_id", "another");
    setup.set("verification.min_required_signatures", known.min_required_signatures + 1);
    setup.write();
    let told = setup.tell(&["reload", "--json"]).await.json().remove(0);
    let warnings: Vec<_> = told["warnings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(warnings.len(), 4, "{told:#}");
    assert!(warnings[0].starts_with("channel c0: the workflow owner is now 0x"), "{told:#}");
    assert!(warnings[1].starts_with("channel c0: 5 signatures are now required instead of 4: "), "{told:#}");
    let said = "the new configuration rejects events that were verified recently";
    assert_eq!(daemon.stop().await.lines(said).len(), 2 + 4);
}
