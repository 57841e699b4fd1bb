//! The service shows the same proof, or the same workflow, in two channels.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use simulator::{Options, ReplayedId, Simulator, Steal};

use super::PROVED;
use super::belonging::{quarantined, service, status, until_lines, until_rejected, workflows};
use crate::support::{LONGEST_WAIT, Setup, deliverable};

const SHARED: &str = "another channel showed this workflow first: this may be correct, and is logged once; to see the workflows of a channel, run `channeld channels pin` with its name";

/// The reasons why the daemon is not ready.
async fn reasons(setup: &Setup) -> Vec<String> {
    let seen = status(setup).await;
    assert_eq!(seen["ready"], seen["reasons"] == json!([]));
    seen["reasons"].as_array().unwrap().iter().map(|reason| reason.as_str().unwrap().to_owned()).collect()
}

/// Waits until the reasons satisfy the condition. An event is recorded a moment after its delivery, so the first status can
/// be too early.
async fn until_reasons(setup: &Setup, what: &str, hold: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        let reasons = reasons(setup).await;
        if hold(&reasons) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}, but {reasons:?}");
    }
}

/// Waits until both channels report the proof. Each reason names the other channel and the digest of the proof.
async fn until_both_say_so(setup: &Setup, digest: &Value) {
    let digest = digest.as_str().unwrap();
    let says = |reason: &String, channel: &str, other: &str| {
        reason.starts_with(&format!("channel {channel}: "))
            && reason.contains(&format!("channel {other} "))
            && reason.contains(digest)
    };
    let both = |reasons: &[String]| {
        [("c0", "c1"), ("c1", "c0")].into_iter().all(|(one, other)| reasons.iter().any(|it| says(it, one, other)))
    };
    until_reasons(setup, "both channels report the proof", both).await;
}

async fn until_ready(setup: &Setup) {
    until_reasons(setup, "ready", <[_]>::is_empty).await;
}

fn add_owner(setup: &mut Setup, simulator: &Simulator) {
    setup.set("channels.c0.id", simulator.announcement().channels[0].to_string());
    setup.set("channels.c0.sinks", vec!["file"]);
}

#[tokio::test]
async fn an_event_first_seen_in_another_channel_is_quarantined_until_a_pin_decides() {
    let simulator = service(2).await;
    let mut setup = Setup::reading(&simulator);
    for offset in 1..=20 {
        simulator.publish_one(0, PROVED);
        simulator.replay(0, offset, 1, ReplayedId::New);
    }
    setup.remove("channels.c0");
    setup.run_until_lines(20).await;
    let digest = setup.delivered()[0].verification["digest"].clone();

    add_owner(&mut setup, &simulator);
    let mut daemon = setup.start();
    until_rejected(&mut daemon, 20).await;
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 21, &setup).await;
    until_both_say_so(&setup, &digest).await;
    let kept = setup.tell(&["quarantine", "retry", "c0", "--all", "--json"]).await;
    assert_eq!(kept.code, Some(1), "it is not known to which channel they belong: {kept:?}");
    daemon.stop().await;
    let expected: Vec<_> = (1..=20).map(|offset| (offset, "proof-of-channel".to_owned())).collect();
    assert_eq!(quarantined(&setup, &simulator, 0).await, expected);

    let mut daemon = setup.start();
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 22, &setup).await;
    until_both_say_so(&setup, &digest).await;
    setup.set("channels.c0.expect.workflow_id", workflows(&simulator, 0));
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    let retried = setup.tell(&["quarantine", "retry", "c0", "--all"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    until_lines(&mut daemon, 42, &setup).await;
    until_ready(&setup).await;
    daemon.stop().await;
    let held_back = [21, 22].into_iter().chain(1..=20).collect::<Vec<_>>();
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), (held_back, (1..=20).collect()));

    let mut daemon = setup.start();
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 43, &setup).await;
    until_ready(&setup).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_pinned_channel_recovers_events_first_seen_elsewhere_with_one_command() {
    let simulator = service(2).await;
    let mut setup = Setup::reading(&simulator);
    for offset in 1..=5 {
        simulator.publish_one(0, PROVED);
        simulator.replay(0, offset, 1, ReplayedId::New);
    }
    setup.remove("channels.c0");
    setup.run_until_lines(5).await;
    add_owner(&mut setup, &simulator);
    setup.set("channels.c0.expect.workflow_id", workflows(&simulator, 0));

    let mut daemon = setup.start();
    until_rejected(&mut daemon, 5).await;
    until_both_say_so(&setup, &setup.delivered()[0].verification["digest"]).await;
    assert_eq!(setup.tell(&["quarantine", "retry", "c0", "--all"]).await.code, Some(0));
    until_lines(&mut daemon, 10, &setup).await;
    until_ready(&setup).await;
    daemon.stop().await;
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), ((1..=5).collect(), (1..=5).collect()));
}

#[tokio::test]
async fn an_event_copied_after_its_channel_read_it_is_quarantined_until_acknowledged() {
    let simulator = service(2).await;
    let setup = Setup::reading(&simulator);
    for _ in 1..=5 {
        simulator.publish_one(0, PROVED);
    }
    let mut daemon = setup.start();
    until_lines(&mut daemon, 5, &setup).await;
    for offset in 1..=5 {
        simulator.replay(0, offset, 1, ReplayedId::New);
    }
    simulator.publish_one(1, PROVED);
    until_lines(&mut daemon, 6, &setup).await;
    until_both_say_so(&setup, &setup.delivered()[0].verification["digest"]).await;
    assert_eq!(
        setup.tell(&["quarantine", "retry", "c1", "--all"]).await.code,
        Some(1),
        "the events do not belong to this channel"
    );
    let drop = ["quarantine", "drop", "c1", "--reason", "proof-of-channel"];
    assert_eq!(setup.tell(&drop).await.code, Some(64), "the command needs --yes");
    assert_eq!(setup.tell(&[&drop[..], &["--yes"]].concat()).await.code, Some(0));
    until_ready(&setup).await;
    daemon.stop().await;
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), ((1..=5).collect(), vec![6]));
}

#[tokio::test]
async fn an_event_rejected_by_one_channel_and_delivered_by_another_makes_both_not_ready() {
    let simulator = service(2).await;
    let setup = Setup::reading(&simulator).with("channels.c1.expect.workflow_id", workflows(&simulator, 1));
    for offset in 1..=3 {
        simulator.publish_one(0, PROVED);
        simulator.replay(0, offset, 1, ReplayedId::New);
    }
    simulator.publish_one(1, PROVED);
    let mut daemon = setup.start();
    until_lines(&mut daemon, 4, &setup).await;
    let first = setup.delivered().into_iter().find(|record| record.channel == "c0").unwrap();
    until_both_say_so(&setup, &first.verification["digest"]).await;
    daemon.stop().await;
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    until_both_say_so(&setup, &first.verification["digest"]).await;
    let drop = ["quarantine", "drop", "c1", "--reason", "unexpected-workflow", "--yes"];
    assert_eq!(setup.tell(&drop).await.code, Some(0));
    until_ready(&setup).await;
    daemon.stop().await;
    assert_eq!((setup.offsets("c0"), setup.offsets("c1")), (vec![1, 2, 3], vec![4]));
}

#[tokio::test]
async fn two_channels_reading_at_once_lose_and_repeat_nothing() {
    let steal = Some(Steal { from: 0, into: 1 });
    let simulator = Simulator::start(Options { channels: 2, events: 200, steal, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until_logged("event rejected: not delivered").await;
    simulator.publish_one(0, PROVED);
    simulator.publish_one(1, PROVED);
    let is_last = |name: &str| setup.offsets(name).last() == Some(&201);
    // The end of the last batch can be visible only in part.
    let is_whole = || std::fs::read(setup.path("events.jsonl")).is_ok_and(|file| file.ends_with(b"\n"));
    daemon.until("both have read everything", |_| is_last("c0") && is_last("c1") && is_whole()).await;
    let digests: BTreeSet<_> = setup.delivered().iter().map(|one| one.verification["digest"].to_string()).collect();
    assert_eq!(digests.len(), setup.lines(), "no proof is delivered twice");
    assert!(reasons(&setup).await.len() >= 2);

    for (channel, name) in [(0, "c0"), (1, "c1")] {
        setup.set(&format!("channels.{name}.expect.workflow_id"), workflows(&simulator, channel));
    }
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    setup.tell(&["quarantine", "retry", "c0", "--all"]).await;
    let all: BTreeSet<_> = deliverable(&simulator, 0).into_iter().collect();
    daemon.until("c0 has all its events", |_| setup.offsets("c0").into_iter().collect::<BTreeSet<_>>() == all).await;
    for reason in ["proof-of-channel", "other-channel"] {
        setup.tell(&["quarantine", "drop", "c1", "--reason", reason, "--yes"]).await;
    }
    until_ready(&setup).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_workflow_in_two_channels_is_reported_once_until_a_pin_decides() {
    let simulator = service(2).await;
    let mut setup = Setup::reading(&simulator).with("channels.c0.start", "31");
    for offset in 1..=60 {
        simulator.publish_one(0, PROVED);
        if offset <= 30 {
            simulator.replay(0, offset, 1, ReplayedId::New);
        }
    }
    let notices = |seen: &Value| {
        let channels = seen["channels"].as_array().unwrap().iter();
        channels.filter_map(|channel| channel["shared_workflows"].as_array()).map(Vec::len).sum::<usize>()
    };
    let mut daemon = setup.start();
    until_lines(&mut daemon, 60, &setup).await;
    let seen = status(&setup).await;
    assert_eq!((notices(&seen), seen["ready"].clone()), (3, json!(true)), "one notice per watcher: {seen}");
    assert_eq!(daemon.stop().await.lines(SHARED).len(), 3);

    let mut daemon = setup.start();
    simulator.publish_one(0, PROVED);
    until_lines(&mut daemon, 61, &setup).await;
    assert_eq!(notices(&status(&setup).await), 3, "the notices stay after a restart");
    for name in ["c0", "c1"] {
        setup.set(&format!("channels.{name}.expect.workflow_id"), workflows(&simulator, 0));
    }
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    let seen = status(&setup).await;
    assert_eq!((notices(&seen), seen["channels"][0]["pinned"].clone()), (0, json!(["workflow_id"])));
    assert_eq!(daemon.stop().await.lines(SHARED).len(), 0, "it was logged before");
}
