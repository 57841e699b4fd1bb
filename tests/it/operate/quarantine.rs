//! Quarantined events are listed, shown, dropped, and retried after the reason is gone.

use proof::event::Offset;
use simulator::{EventSpec, Options, Simulator};

use super::{FORGED, LATE, PROVED, service};
use crate::support::{FILLER, Receiver, Setup, deliverable, fill_quarantine, offsets, records};

const STRANGER: &str = "0x00000000000000000000000000000000000000aa";

/// A configuration from before a signer rotation: it contains none of the network's signers.
fn with_signers_of_yesterday(simulator: &Simulator) -> Setup {
    let setup = Setup::reading(simulator).with("verification.valid_signers", vec![STRANGER]);
    setup.with("verification.min_required_signatures", 1)
}

/// Configures the current signers.
fn correct(setup: &mut Setup, simulator: &Simulator) {
    let signers: Vec<_> = simulator.announcement().valid_signers.iter().map(ToString::to_string).collect();
    setup.set("verification.valid_signers", signers);
    setup.set("verification.min_required_signatures", simulator.announcement().min_required_signatures);
    setup.write();
}

/// Runs the daemon until this many events are quarantined and the batch is recorded.
async fn run_until_quarantined(setup: &Setup, events: usize) {
    let mut daemon = setup.start();
    let rejected = "event rejected: not delivered";
    daemon.until("the events are rejected", |daemon| daemon.log().lines(rejected).len() == events).await;
    daemon.until_logged("batch recorded").await;
    daemon.stop().await;
}

#[tokio::test]
async fn without_a_daemon_quarantined_events_are_listed_shown_and_dropped_on_confirmation() {
    let simulator = service(&[PROVED, FORGED, PROVED, FORGED]).await;
    let setup = Setup::reading(&simulator);
    run_until_quarantined(&setup, 2).await;

    let listed = setup.tell(&["quarantine", "list", "--json"]).await;
    assert_eq!(listed.each("offset"), [2, 4]);
    assert_eq!(listed.each("reason"), ["event-hash-mismatch", "event-hash-mismatch"]);
    let truth = records(&simulator, 0).await;
    assert_eq!(setup.tell(&["quarantine", "show", "c0", "2", "--raw"]).await.out, truth[&2].as_bytes());
    assert_eq!(setup.tell(&["quarantine", "show", "c0", "2", "--json"]).await.each("text"), [truth[&2].as_str()]);
    assert_eq!(setup.tell(&["quarantine", "show", "c0", "3"]).await.code, Some(64));

    let retried = setup.tell(&["quarantine", "retry", "c0", "--all"]).await;
    assert_eq!(retried.code, Some(1), "the events are still rejected: {retried:?}");
    assert_eq!(setup.tell(&["quarantine", "drop", "c0", "2"]).await.code, Some(64));
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.json().len(), 2, "nothing is dropped without --yes");
    assert_eq!(setup.tell(&["quarantine", "drop", "c0", "2", "--yes"]).await.code, Some(0));
    assert_eq!(setup.tell(&["quarantine", "list", "c0", "--json"]).await.each("offset"), [4]);
}

#[tokio::test]
async fn a_missed_signer_rotation_is_recovered_with_a_stopped_daemon() {
    let simulator = service(&[PROVED, EventSpec::WithoutId, FORGED, PROVED]).await;
    let receiver = Receiver::start().await;
    let mut setup = with_signers_of_yesterday(&simulator).with_webhook("hook", &receiver);
    run_until_quarantined(&setup, 4).await;
    assert_eq!(setup.lines(), 0);

    let rejected = jiff::Timestamp::now().to_string();
    correct(&mut setup, &simulator);
    let retried = setup.tell(&["quarantine", "retry", "c0", "--all", "--reason", "too-few-signatures"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let mut daemon = setup.start();
    daemon.until("the valid events arrive", |_| setup.lines() == 3 && receiver.received() == 3).await;
    simulator.publish_one(0, PROVED);
    daemon.until("the new event arrives", |_| setup.lines() == 4 && receiver.received() == 4).await;
    daemon.stop().await;

    let first_read = setup.delivered().iter().filter(|delivered| delivered.received < rejected).count();
    assert_eq!(first_read, 3, "all events except the new one");
    let sorted = |mut offsets: Vec<i64>| {
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(sorted(setup.offsets("c0")), deliverable(&simulator, 0));
    assert_eq!(sorted(offsets(&receiver.delivered())), deliverable(&simulator, 0));
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), [3]);
}

#[tokio::test]
async fn a_missed_signer_rotation_is_recovered_while_the_daemon_runs() {
    let simulator = service(&[PROVED, EventSpec::WithoutId, FORGED, PROVED]).await;
    let receiver = Receiver::start().await;
    let mut setup = with_signers_of_yesterday(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("both sinks have passed the events", |daemon| daemon.log().lines("batch recorded").len() == 2).await;
    let retry = ["quarantine", "retry", "c0", "--all"];
    let too_early = setup.tell(&retry).await;
    assert_eq!(too_early.code, Some(1), "{too_early:?}");

    correct(&mut setup, &simulator);
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    let retried = setup.tell(&retry).await;
    assert_eq!(retried.code, Some(1), "the forged event stays in the quarantine: {retried:?}");
    simulator.publish_one(0, PROVED);
    daemon.until("the valid events arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;
    daemon
        .until("the late deliveries are logged", |daemon| {
            daemon.log().lines("event delivered as an operator asked").len() == 6
        })
        .await;
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), [3]);
    daemon.kill().await;
    setup.run_until_lines(4).await;

    let sorted = |mut offsets: Vec<i64>| {
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(sorted(setup.offsets("c0")), deliverable(&simulator, 0));
    assert_eq!(sorted(offsets(&receiver.delivered())), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_full_quarantine_stops_only_its_channel_until_there_is_room() {
    let simulator = Simulator::start(Options { channels: 2, ..Options::default() }).await.unwrap();
    for (channel, spec) in [PROVED, FORGED, PROVED].into_iter().flat_map(|spec| [(0, spec), (1, spec)]) {
        simulator.publish_one(channel, spec);
    }
    let setup = Setup::reading(&simulator);
    fill_quarantine(&setup, simulator.announcement().channels[0]).await;

    let mut daemon = setup.start();
    let full = "the channel's quarantine is full: reading stops, because rejected events would be lost; examine them with `channeld quarantine list`, then retry or drop them";
    daemon.until_logged(full).await;
    daemon.until("the other channel continues", |_| setup.lines() == 2).await;
    assert_eq!(setup.offsets("c1"), deliverable(&simulator, 1));
    daemon.until_logged("batch recorded").await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!((&report["channels"][0]["state"], &report["ready"]), (&"quarantine_full".into(), &false.into()));
    let reasons = report["reasons"].as_array().unwrap();
    let said = reasons[0].as_str().unwrap().starts_with("channel c0: its quarantine is full (1,000 events");
    assert!(said && reasons.len() == 1, "{report:#}");
    let dropped = setup.tell(&["quarantine", "drop", "c0", &FILLER.to_string(), "--yes"]).await;
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    daemon.until("the channel reads again", |_| setup.lines() == 4).await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
    assert_eq!(daemon.stop().await.lines(full).len(), 1, "the message is logged once");
    let kept = setup.tell(&["quarantine", "list", "c0", "--json"]).await.json();
    let forged = kept.iter().find(|kept| kept["offset"] == 2).unwrap();
    assert_eq!((kept.len(), &forged["reason"]), (1000, &"event-hash-mismatch".into()), "{forged}");
}

#[tokio::test]
async fn a_pending_event_with_a_bad_proof_waits_while_the_quarantine_is_full() {
    let simulator = service(&[LATE, PROVED]).await;
    let mut setup = Setup::reading(&simulator);
    setup.run_until_lines(1).await;
    let channel = simulator.announcement().channels[0];
    fill_quarantine(&setup, channel).await;
    simulator.prove(0, 1);
    setup.set("verification.valid_signers", vec![STRANGER]);
    setup.set("verification.min_required_signatures", 1);

    let (mut daemon, asked) = (setup.start(), simulator.requests().event);
    // An event with an invalid proof is requested a second time before it is rejected.
    daemon.until("the event is requested again", |_| simulator.requests().event >= asked + 3).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let shown = &report["channels"][0];
    assert_eq!((&shown["pending"], &shown["quarantined"]), (&1.into(), &1000.into()), "{report:#}");

    let dropped = setup.tell(&["quarantine", "drop", "c0", &FILLER.to_string(), "--yes"]).await;
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    let mirror = setup.path("state/cursors.json");
    let is_settled = || std::fs::read_to_string(&mirror).unwrap().contains(r#""late_events": 0"#);
    daemon.until("the event is quarantined", |_| is_settled()).await;
    daemon.stop().await;
    assert_eq!(setup.quarantined(channel, Offset::new(1).unwrap()).await.reason, "too-few-signatures");
}
