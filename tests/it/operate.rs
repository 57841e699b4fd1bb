//! What an operator sees and changes: the quarantine and the cursors, whether or not a daemon runs.

use channeld::event::ChannelId;
use channeld::simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::support::{Receiver, Setup, deliverable, fill_quarantine, offsets, records};

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const FORGED: EventSpec = EventSpec::Forged(Tampering::ContentChanged);
const STRANGER: &str = "0x00000000000000000000000000000000000000aa";

async fn service(specs: &[EventSpec]) -> Simulator {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in specs {
        simulator.publish_one(0, *spec);
    }
    simulator
}

/// As it was before the rotation: of the network's signers none is known.
fn with_signers_of_yesterday(simulator: &Simulator) -> Setup {
    let setup = Setup::reading(simulator).with("verification.valid_signers", vec![STRANGER]);
    setup.with("verification.min_required_signatures", 1)
}

/// The signers of now.
fn correct(setup: &mut Setup, simulator: &Simulator) {
    let signers: Vec<_> = simulator.announcement().valid_signers.iter().map(ToString::to_string).collect();
    setup.set("verification.valid_signers", signers);
    setup.set("verification.min_required_signatures", simulator.announcement().min_required_signatures);
    setup.write();
}

/// Runs until the quarantine holds so much, and everything read is recorded.
async fn run_until_quarantined(setup: &Setup, events: usize) {
    let mut daemon = setup.start();
    let rejected = "event rejected: quarantined, not delivered";
    daemon.until("it is rejected", |daemon| daemon.log().lines(rejected).len() == events).await;
    daemon.until_logged("batch recorded").await;
    daemon.stop().await;
}

#[tokio::test]
async fn evidence_of_a_stopped_daemon_is_listed_shown_and_dropped_by_word_only() {
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
    assert_eq!(retried.code, Some(1), "it still does not hold: {retried:?}");
    assert_eq!(setup.tell(&["quarantine", "drop", "c0", "2"]).await.code, Some(64));
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.json().len(), 2, "nothing was dropped yet");
    assert_eq!(setup.tell(&["quarantine", "drop", "c0", "2", "--yes"]).await.code, Some(0));
    assert_eq!(setup.tell(&["quarantine", "list", "c0", "--json"]).await.each("offset"), [4]);
}

#[tokio::test]
async fn a_signer_rotation_noticed_late_is_recovered_from_with_a_stopped_daemon() {
    let simulator = service(&[PROVED, EventSpec::WithoutId, FORGED, PROVED]).await;
    let receiver = Receiver::start().await;
    let mut setup = with_signers_of_yesterday(&simulator).with_webhook("hook", &receiver);
    run_until_quarantined(&setup, 4).await;
    assert_eq!(setup.lines(), 0);

    correct(&mut setup, &simulator);
    let retried = setup.tell(&["quarantine", "retry", "c0", "--all", "--reason", "too-few-signatures"]).await;
    assert_eq!(retried.code, Some(0), "{retried:?}");
    let mut daemon = setup.start();
    daemon.until("all that holds arrives", |_| setup.lines() == 3 && receiver.received() == 3).await;
    simulator.publish_one(0, PROVED);
    daemon.until("and what is new", |_| setup.lines() == 4 && receiver.received() == 4).await;
    daemon.stop().await;

    let sorted = |mut offsets: Vec<i64>| {
        offsets.sort_unstable();
        offsets
    };
    assert_eq!(sorted(setup.offsets("c0")), deliverable(&simulator, 0));
    assert_eq!(sorted(offsets(&receiver.delivered())), deliverable(&simulator, 0));
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), [3]);
}

#[tokio::test]
async fn a_cursor_put_back_repeats_what_was_announced_and_only_there() {
    let simulator = service(&[PROVED; 6]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 6 && receiver.received() == 6).await;
    daemon.stop().await;
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [6, 6]);

    let set = ["cursor", "set", "c0", "--sink", "hook", "--to", "4", "--json"];
    let asked = setup.tell(&set).await;
    assert_eq!(asked.code, Some(64), "{asked:?}");
    assert!(asked.errors.contains("--yes"), "{asked:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [6, 6]);
    let done = setup.tell(&[&set[..], &["--yes"]].concat()).await;
    assert_eq!(done.each("repeated"), [2]);
    assert!(done.errors.contains("cursor set by an operator"), "{done:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [6, 4]);

    let mut daemon = setup.start();
    daemon.until("they arrive again", |_| receiver.received() == 8).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), [1, 2, 3, 4, 5, 6, 5, 6]);
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn a_cursor_put_on_latest_passes_over_what_was_there() {
    let simulator = service(&[PROVED; 2]).await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(2).await;
    simulator.publish(0, 3);

    let done = setup.tell(&["cursor", "set", "c0", "--to", "latest", "--yes", "--json"]).await;
    assert_eq!((done.each("passed_over"), done.each("to")), (vec![3.into()], vec![5.into()]));
    simulator.publish_one(0, PROVED);
    setup.run_until_lines(3).await;
    assert_eq!(setup.offsets("c0"), [1, 2, 6]);
}

#[tokio::test]
async fn where_there_is_no_state_none_is_made() {
    let simulator = service(&[]).await;
    let setup = Setup::reading(&simulator);
    setup.write();
    let told = setup.tell(&["quarantine", "list"]).await;
    assert_eq!(told.code, Some(1));
    assert!(told.errors.contains("there is no state"), "{told:?}");
    assert!(!setup.path("state").exists());
}

#[tokio::test]
async fn a_running_daemon_answers_at_a_socket_that_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let simulator = service(&[PROVED, FORGED, PROVED, FORGED]).await;
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the good ones arrive", |_| setup.lines() == 2).await;
    daemon.until_logged("batch recorded").await;

    let socket = setup.path("state/control.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(setup.tell(&["quarantine", "list", "c0", "--json"]).await.each("offset"), [2, 4]);
    let truth = records(&simulator, 0).await;
    assert_eq!(setup.tell(&["quarantine", "show", "c0", "2", "--raw"]).await.out, truth[&2].as_bytes());
    assert_eq!(setup.tell(&["quarantine", "drop", "c0", "2", "--yes"]).await.code, Some(0));
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), [4]);
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [4]);
    assert_eq!(setup.tell(&["cursor", "show", "no-such-channel"]).await.code, Some(64));

    let refused = setup.tell(&["cursor", "set", "c0", "--to", "earliest", "--yes"]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors.contains("is running"), "{refused:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [4]);
    let log = daemon.stop().await;
    assert_eq!(log.lines("evidence dropped by an operator").len(), 1);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_signer_rotation_noticed_late_is_recovered_from_while_the_daemon_runs() {
    let simulator = service(&[PROVED, EventSpec::WithoutId, FORGED, PROVED]).await;
    let receiver = Receiver::start().await;
    let mut setup = with_signers_of_yesterday(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("both have passed them", |daemon| daemon.log().lines("batch recorded").len() == 2).await;
    let retry = ["quarantine", "retry", "c0", "--all"];
    let too_early = setup.tell(&retry).await;
    assert_eq!(too_early.code, Some(1), "{too_early:?}");

    correct(&mut setup, &simulator);
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("configuration read again: in force").await;
    let retried = setup.tell(&retry).await;
    assert_eq!(retried.code, Some(1), "the forged one is kept: {retried:?}");
    simulator.publish_one(0, PROVED);
    daemon.until("all that holds arrives", |_| setup.lines() == 4 && receiver.received() == 4).await;
    daemon.until("it is recorded", |daemon| daemon.log().lines("late proof came: delivered").len() == 6).await;
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
async fn a_state_whose_path_is_too_long_for_a_socket_keeps_no_daemon_from_running() {
    let simulator = service(&[PROVED]).await;
    let mut setup = Setup::reading(&simulator);
    setup.set("state.path", setup.path(&"long".repeat(30)).display().to_string());
    let mut daemon = setup.start();
    daemon.until("it arrives", |_| setup.lines() == 1).await;
    assert_eq!(setup.tell(&["cursor", "show"]).await.code, Some(1));
    let said = daemon.stop().await.at("WARN");
    assert!(said.len() == 1 && said[0]["error"].as_str().unwrap().contains("shorter state.path"), "{said:?}");
}

#[tokio::test]
async fn a_full_quarantine_stops_reading_and_says_so_until_there_is_room() {
    let simulator = service(&[PROVED, FORGED, PROVED]).await;
    let setup = Setup::reading(&simulator);
    let elsewhere: ChannelId = "7c9e6679-7425-40de-944b-e07fc1f90ae7".parse().unwrap();
    fill_quarantine(&setup, elsewhere).await;

    let mut daemon = setup.start();
    let full = "quarantine is full: reading stops, because evidence would be lost; look into it with `channeld \
                quarantine list`, then retry or drop";
    daemon.until_logged(full).await;
    assert_eq!((setup.lines(), setup.tell(&["quarantine", "list", "c0", "--json"]).await.json().len()), (0, 0));
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!((&report["channels"][0]["state"], &report["ready"]), (&"quarantine_full".into(), &false.into()));
    assert!(report["reasons"][0].as_str().unwrap().starts_with("the quarantine is full (10000 events"), "{report:#}");
    let dropped = setup.tell(&["quarantine", "drop", &elsewhere.to_string(), "1", "--yes"]).await;
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    daemon.until("reading goes on", |_| setup.lines() == 2).await;
    daemon.until_logged("batch recorded").await;
    assert_eq!(setup.tell(&["quarantine", "list", "c0", "--json"]).await.each("offset"), [2]);
    assert_eq!(daemon.stop().await.lines(full).len(), 1, "it is said once");
}

#[tokio::test]
async fn a_paused_channel_stands_still_and_its_cursors_can_be_set_until_it_is_resumed() {
    let simulator = service(&[PROVED; 4]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;

    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
    daemon.until_logged("channel paused").await;
    simulator.publish(0, 2);
    let polls = simulator.requests().poll;
    let set = setup.tell(&["cursor", "set", "c0", "--sink", "hook", "--to", "3", "--yes", "--json"]).await;
    assert_eq!(set.each("repeated"), [1]);
    assert_eq!((setup.lines(), receiver.received(), simulator.requests().poll), (4, 4, polls));

    assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
    daemon.until("it goes on", |_| setup.lines() == 6 && receiver.received() == 7).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6]);
    assert_eq!(offsets(&receiver.delivered()), [1, 2, 3, 4, 4, 5, 6]);
}

#[tokio::test]
async fn a_paused_sink_holds_up_nobody_and_gets_everything_when_it_is_resumed() {
    let simulator = service(&[PROVED; 2]).await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 3);
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| setup.lines() == 2 && receiver.received() == 2).await;

    assert_eq!(setup.tell(&["pause", "c0", "--sink", "hook"]).await.code, Some(0));
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "nowhere"]).await.code, Some(64));
    simulator.publish(0, 40);
    daemon.until("the other gets all", |_| setup.lines() == 42).await;
    assert_eq!(receiver.received(), 2);

    assert_eq!(setup.tell(&["resume", "c0", "--sink", "hook"]).await.code, Some(0));
    daemon.until("it has caught up", |_| receiver.received() == 42).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(1), "nothing runs");
}

#[tokio::test]
async fn a_command_on_the_state_needs_no_secret() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 3).await;
    daemon.stop().await;
    setup.remove("api.api_key");
    setup.set("api.api_key_file", "/nowhere/at/all");
    setup.write();
    for command in [&["cursor", "show"][..], &["quarantine", "list"], &["dead-letters", "list"], &["status"]] {
        let told = setup.tell(command).await;
        assert_eq!(told.code, Some(0), "{command:?}: {told:?}");
    }
    let told = setup.tell(&["check"]).await;
    assert!(told.code == Some(78) && told.errors.contains("api.api_key_file"), "{told:?}");
}
